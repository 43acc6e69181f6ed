//! Durations as whole microseconds, the unit of all arithmetic in this crate.

use std::time::Duration;

/// Whole microseconds, saturating at `u64::MAX`.
pub(crate) fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
