//! Routes: which severity goes to which classes of sinks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::event::{Event, EventKind};
use crate::severity::Severity;

/// What a sink is used for. The configuration assigns classes to sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkClass {
    /// The log.
    Log,
    /// An event on a webhook or a topic.
    Event,
    /// Gauges and counters of the metrics page.
    Gauge,
    /// A page to the on-call engineer.
    Page,
    /// An urgent page to the on-call engineer.
    PageUrgent,
    /// A chat message.
    Chat,
    /// An incident with a timeline.
    Incident,
}

/// Maps each severity to the classes of sinks that get its events. Forecasts go to some more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    by_severity: BTreeMap<Severity, BTreeSet<SinkClass>>,
    forecasts: BTreeSet<SinkClass>,
}

impl Routes {
    /// Sends events of `severity` to exactly these classes of sinks.
    pub fn with(mut self, severity: Severity, sinks: impl IntoIterator<Item = SinkClass>) -> Self {
        self.by_severity
            .insert(severity, sinks.into_iter().collect());
        self
    }

    /// Sends every forecast to these classes of sinks, in addition to those of its severity.
    pub fn with_forecasts(mut self, sinks: impl IntoIterator<Item = SinkClass>) -> Self {
        self.forecasts = sinks.into_iter().collect();
        self
    }

    /// Returns the classes of sinks that get an event. A silenced event goes only to the log and the
    /// metrics, and what says that somebody silenced alerts goes to the log.
    pub fn sinks(&self, event: &Event) -> BTreeSet<SinkClass> {
        let routed = self.by_severity.get(&event.severity).cloned();
        let mut sinks = routed.unwrap_or_default();
        if matches!(
            event.kind,
            EventKind::Predicted { .. } | EventKind::ForecastOver { .. }
        ) {
            sinks.extend(&self.forecasts);
        }
        let is_about_silence = matches!(
            event.kind,
            EventKind::Silenced { .. } | EventKind::SilenceEnded { .. }
        );
        if is_about_silence {
            return BTreeSet::from([SinkClass::Log]);
        }
        if event.silenced_by.is_some() {
            sinks.retain(|sink| matches!(sink, SinkClass::Log | SinkClass::Gauge));
        }
        sinks
    }
}

impl Default for Routes {
    /// WARNING: log, event and gauge. CRITICAL: also a page and a chat message. EXHAUSTED: the page is
    /// urgent, and an incident is opened. Forecasts: a chat message in any case, and what their
    /// severity adds, which is CRITICAL when little time is left.
    fn default() -> Self {
        use SinkClass::{Chat, Event, Gauge, Incident, Log, Page, PageUrgent};
        let none = Self {
            by_severity: BTreeMap::new(),
            forecasts: BTreeSet::from([Chat]),
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
