//! Which severity does what.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::alert::Event;
use crate::severity::Severity;

/// A kind of place where events go. Which places those are is configuration elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkClass {
    /// The log: as warning, error or critical, by severity.
    Log,
    /// An event on a topic or a webhook.
    Event,
    /// Gauges and counters.
    Gauge,
    /// The on-call engineer's pager.
    Page,
    /// The same pager, urgently.
    PageUrgent,
    /// A chat.
    Chat,
    /// An incident with its timeline.
    Incident,
}

/// Which severity goes to which sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    by_severity: BTreeMap<Severity, BTreeSet<SinkClass>>,
}

impl Routes {
    /// Sends `severity` to exactly these sinks.
    pub fn with(mut self, severity: Severity, sinks: impl IntoIterator<Item = SinkClass>) -> Self {
        self.by_severity
            .insert(severity, sinks.into_iter().collect());
        self
    }

    /// Where an event goes. Under a silence it is recorded, and wakes nobody.
    pub fn sinks(&self, event: &Event) -> BTreeSet<SinkClass> {
        let routed = self.by_severity.get(&event.severity).cloned();
        let mut sinks = routed.unwrap_or_default();
        if event.silenced_by.is_some() {
            sinks.retain(|sink| matches!(sink, SinkClass::Log | SinkClass::Gauge));
        }
        sinks
    }
}

impl Default for Routes {
    /// WARNING: log, event, gauge. CRITICAL: a page and a chat message too. EXHAUSTED: the page is
    /// urgent, and there is an incident.
    fn default() -> Self {
        use SinkClass::{Chat, Event, Gauge, Incident, Log, Page, PageUrgent};
        let none = Self {
            by_severity: BTreeMap::new(),
        };
        none.with(Severity::Normal, [Log, Gauge])
            .with(Severity::Warning, [Log, Event, Gauge])
            .with(Severity::Critical, [Log, Event, Gauge, Page, Chat])
            .with(
                Severity::Exhausted,
                [Log, Event, Gauge, PageUrgent, Chat, Incident],
            )
    }
}
