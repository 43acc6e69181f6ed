//! How requests ended that were not granted at once, counted for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::AcquireError;
#[cfg(feature = "prometheus")]
use crate::telemetry::WaitCounts;

/// How a request ended.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Granted,
    TimedOut,
    /// Its future was dropped.
    Dropped,
    TooManyWaiters,
    /// For any other reason: it wanted more than the capacity, or the store failed.
    Refused,
}

#[derive(Default)]
pub(super) struct Outcomes([AtomicU64; 5]);

impl Outcomes {
    pub(super) fn add_one(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "prometheus")]
    pub(super) fn read(&self) -> WaitCounts {
        let read = |outcome: Outcome| self.0[outcome as usize].load(Ordering::Relaxed);
        WaitCounts {
            granted: read(Outcome::Granted),
            timed_out: read(Outcome::TimedOut),
            dropped: read(Outcome::Dropped),
            too_many_waiters: read(Outcome::TooManyWaiters),
            refused: read(Outcome::Refused),
        }
    }
}

impl From<&AcquireError> for Outcome {
    fn from(error: &AcquireError) -> Self {
        match error {
            AcquireError::TimedOut => Self::TimedOut,
            AcquireError::TooManyWaiters { .. } => Self::TooManyWaiters,
            AcquireError::BadKey(_)
            | AcquireError::OverCapacity { .. }
            | AcquireError::Store(_) => Self::Refused,
        }
    }
}
