//! The log: one line for each event, at the level of how bad it is now.

use crate::history::Letter;
use crate::severity::Severity;
use crate::sink::words::{present_severity, rfc3339, sentence};

/// Writes events to the program's log.
///
/// WARNING is a warning, CRITICAL and EXHAUSTED are errors, told apart by the field `severity`.
/// What is over is news: an error that says that all is well would wake somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSink;

impl LogSink {
    /// Nothing can keep a line from being written but a program that writes none.
    pub(crate) fn deliver(letter: &Letter) {
        // A macro each, for the level of a line is fixed where it is written. The JSON log has
        // `level` and `timestamp` of its own.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "balde_monitor",
                    event_type = "alert",
                    key = letter.event.key,
                    episode = letter.event.episode,
                    kind = letter.event.kind.label(),
                    participant = letter.event.participant,
                    policy = letter.event.policy,
                    severity = letter.event.severity.name(),
                    present_severity = present_severity(&letter.event).name(),
                    bucket_level = letter.event.level,
                    capacity = letter.event.capacity,
                    at = rfc3339(letter.event.at_us),
                    silenced_by = letter.event.silenced_by,
                    "{}",
                    sentence(&letter.event)
                )
            };
        }
        match present_severity(&letter.event) {
            Severity::Normal => line!(info),
            Severity::Warning => line!(warn),
            Severity::Critical | Severity::Exhausted => line!(error),
        }
    }
}
