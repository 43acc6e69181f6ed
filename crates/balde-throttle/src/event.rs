//! What is logged about partitions. Their names are the program's own, so they are written as they
//! are; a name that comes from a stranger does not belong into a throttler.

use std::sync::Arc;
use std::time::Duration;

use crate::rate::Pace;

/// Something that happened to a partition, to be told when the lock has been let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) partition: Arc<str>,
    pub(crate) what: What,
    pub(crate) before: Pace,
    pub(crate) after: Pace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Degraded,
    Raised,
    Restored,
    Opened { for_: Duration },
    HalfOpened,
    Reset,
}

macro_rules! tell {
    ($level:ident, $throttler:expr, $note:expr, $event:literal, $($message:tt)+) => {
        tracing::$level!(
            event_type = $event,
            policy = $throttler,
            partition = &*$note.partition,
            old_rate = $note.before.rate().tokens(),
            new_rate = $note.after.rate().tokens(),
            old_burst = $note.before.burst(),
            new_burst = $note.after.burst(),
            $($message)+
        )
    };
}

impl Note {
    pub(crate) fn log(&self, throttler: &str) {
        let (old, new) = (self.before, self.after);
        match self.what {
            What::Degraded => tell!(
                warn,
                throttler,
                self,
                "throttle_degraded",
                "degraded from {old} to {new}"
            ),
            What::Opened { for_ } => tell!(
                error,
                throttler,
                self,
                "throttle_circuit_opened",
                "the circuit is open for {for_:?}"
            ),
            What::Reset => tell!(
                info,
                throttler,
                self,
                "throttle_circuit_reset",
                "the circuit is closed again, at {new}"
            ),
            What::Restored => tell!(
                info,
                throttler,
                self,
                "throttle_restored",
                "back at the original {new}"
            ),
            What::Raised => tell!(
                debug,
                throttler,
                self,
                "throttle_raised",
                "raised from {old} to {new}"
            ),
            What::HalfOpened => tell!(
                debug,
                throttler,
                self,
                "throttle_circuit_half_opened",
                "a few probes at {new}"
            ),
        }
    }
}
