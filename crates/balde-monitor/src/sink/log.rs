//! The log: one line for each event, at the level of how bad it is now.

use crate::history::OutboxMessage;
use crate::severity::Severity;
use crate::sink::text::{current_severity, description, rfc3339};

/// Writes events to the program's log.
///
/// WARNING is a warning, CRITICAL and EXHAUSTED are errors, told apart by the field `severity`.
/// What is over is news: an error that says that all is well would wake somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSink;

impl LogSink {
    /// Nothing can keep a line from being written but a program that writes none.
    pub(crate) fn deliver(message: &OutboxMessage) {
        // A macro each, for the level of a line is fixed where it is written. The JSON log has
        // `level` and `timestamp` of its own.
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
                    at = rfc3339(message.event.at_us),
                    silenced_by = message.event.silenced_by,
                    "{}",
                    description(&message.event)
                )
            };
        }
        match current_severity(&message.event) {
            Severity::Normal => line!(info),
            Severity::Warning => line!(warn),
            Severity::Critical | Severity::Exhausted => line!(error),
        }
    }
}
