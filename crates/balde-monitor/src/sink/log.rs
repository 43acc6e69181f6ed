//! The log sink: one line for each event.

use super::text::{Wording, current_severity, rfc3339};
use crate::alert::OutboxMessage;
use crate::alert::{Event, EventKind};
use crate::severity::Severity;

/// Writes events to the log of this process.
///
/// The level follows the severity after the event: WARN for WARNING, ERROR for CRITICAL and
/// EXHAUSTED, INFO for NORMAL and for what operators did. The field `severity` distinguishes CRITICAL from EXHAUSTED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSink;

impl LogSink {
    /// Never fails.
    pub(super) fn deliver(message: &OutboxMessage, wording: &Wording) {
        // A macro, because the level of a line must be known at compile time.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "balde_monitor",
                    event_type = "alert",
                    key = message.event.key,
                    episode = message.event.episode,
                    kind = message.event.kind.label(),
                    participant = message.event.participant,
                    policy = message.event.policy,
                    severity = message.event.severity.name(),
                    current_severity = current_severity(&message.event).name(),
                    bucket_level = message.event.level,
                    capacity = message.event.capacity,
                    recovery_s = message.event.recovery_us.map(|us| us.div_ceil(1_000_000)),
                    at = rfc3339(message.event.at_us),
                    empty_in_s = empty_in_s(&message.event),
                    silenced_by = message.event.silenced_by,
                    runbook = wording.runbook(&message.event),
                    dashboard = wording.dashboard(&message.event),
                    "{}",
                    wording.description(&message.event)
                )
            };
        }
        match current_severity(&message.event) {
            // What somebody did about an alert is no further alert.
            _ if message.event.kind.is_by_operator() => line!(info),
            Severity::Normal => line!(info),
            Severity::Warning => line!(warn),
            Severity::Critical | Severity::Exhausted => line!(error),
        }
    }
}

/// How long a bucket will last, if that is what the event is about.
fn empty_in_s(event: &Event) -> Option<u64> {
    match event.kind {
        EventKind::Predicted { empty_at_us, .. } => {
            Some(empty_at_us.saturating_sub(event.at_us) / 1_000_000)
        }
        _ => None,
    }
}
