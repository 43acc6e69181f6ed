//! A throttle for log events, so that a flood of requests does not become a flood of lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// Lets one event per interval through (by default, one per second) and counts those that it
/// suppressed. Times are in microseconds.
///
/// ```
/// use balde::telemetry::LogThrottle;
///
/// let throttle = LogThrottle::new();
/// assert_eq!(throttle.allow(0), Some(0));
/// assert_eq!(throttle.allow(10), None);
/// // One second later an event passes again, with the number of those suppressed since.
/// assert_eq!(throttle.allow(1_000_000), Some(1));
/// ```
#[derive(Debug)]
pub struct LogThrottle {
    interval_us: u64,
    next_us: AtomicU64,
    suppressed: AtomicU64,
}

impl LogThrottle {
    /// Creates a throttle that lets the first event through, and then one per second.
    pub const fn new() -> Self {
        Self::every(INTERVAL_DEFAULT)
    }

    /// Creates a throttle that lets the first event through, and then one per `interval`.
    pub const fn every(interval: Duration) -> Self {
        Self {
            // The interval of a log is far below the 500,000 years that fit.
            interval_us: interval.as_secs().saturating_mul(1_000_000)
                + interval.subsec_micros() as u64,
            next_us: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Decides whether an event at `now_us` (in microseconds) may be logged. Returns the number of
    /// events suppressed since the last one that was logged, or `None` if this event is suppressed.
    pub fn allow(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let after_us = now_us.saturating_add(self.interval_us);
        let is_first = now_us >= next_us
            && self
                .next_us
                .compare_exchange(next_us, after_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_at_once_and_then_one_a_second_with_a_count() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.allow(5), Some(0));
        for now_us in 6..106 {
            assert_eq!(throttle.allow(now_us), None);
        }
        assert_eq!(throttle.allow(1_000_005), Some(100));
        assert_eq!(throttle.allow(1_000_006), None);
        assert_eq!(throttle.allow(9_000_000), Some(1));
    }

    #[test]
    fn the_interval_can_be_chosen() {
        let throttle = LogThrottle::every(Duration::from_secs(10));
        assert_eq!(throttle.allow(5), Some(0));
        assert_eq!(throttle.allow(6), None);
        assert_eq!(throttle.allow(10_000_000), None);
        assert_eq!(throttle.allow(10_000_005), Some(2));
        assert_eq!(throttle.allow(10_000_006), None);
    }
}
