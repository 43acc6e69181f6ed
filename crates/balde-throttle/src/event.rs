//! Log events of partitions.
//!
//! Partition names are written in plain text, so a program must not take them from untrusted input.

use std::sync::Arc;
use std::time::Duration;

use crate::rate::Pace;

/// A change of a partition, logged after the lock has been released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) partition: Arc<str>,
    pub(crate) kind: EventKind,
    pub(crate) before: Pace,
    pub(crate) after: Pace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Degraded,
    Raised,
    Restored,
    CircuitOpened { open_for: Duration },
    CircuitHalfOpened,
    CircuitClosed,
}

macro_rules! log {
    ($level:ident, $throttler:expr, $event:expr, $event_type:literal, $($message:tt)+) => {
        tracing::$level!(
            target: "balde",
            event_type = $event_type,
            policy = $throttler,
            partition = &*$event.partition,
            old_rate = $event.before.rate().tokens(),
            new_rate = $event.after.rate().tokens(),
            old_burst = $event.before.burst(),
            new_burst = $event.after.burst(),
            $($message)+
        )
    };
}

impl Event {
    pub(crate) fn log(&self, throttler: &str) {
        let (old, new) = (self.before, self.after);
        match self.kind {
            EventKind::Degraded => log!(
                warn,
                throttler,
                self,
                "throttle_degraded",
                "errors lowered the partition's rate from {old} to {new}"
            ),
            EventKind::CircuitOpened { open_for } => log!(
                error,
                throttler,
                self,
                "throttle_circuit_opened",
                "the partition's circuit has opened; requests are refused for {open_for:?}"
            ),
            EventKind::CircuitClosed => log!(
                info,
                throttler,
                self,
                "throttle_circuit_closed",
                "the partition's circuit has closed, at {new}"
            ),
            EventKind::Restored => log!(
                info,
                throttler,
                self,
                "throttle_restored",
                "the partition is back at its configured rate, {new}"
            ),
            EventKind::Raised => log!(
                debug,
                throttler,
                self,
                "throttle_raised",
                "the partition's rate was raised from {old} to {new}"
            ),
            EventKind::CircuitHalfOpened => log!(
                debug,
                throttler,
                self,
                "throttle_circuit_half_opened",
                "the partition's circuit is half open; probes pass at {new}"
            ),
        }
    }
}
