//! Limits how often the same kind of log line is written.

use std::sync::atomic::{AtomicU64, Ordering};

/// The shortest time between two lines.
const INTERVAL_US: u64 = 10_000_000;

/// Lets through the first line of its kind, and then at most one every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    next_us: AtomicU64,
    suppressed: AtomicU64,
}

impl LogThrottle {
    /// Returns the number of lines suppressed since the last one if this line may be written, and
    /// `None` if it is suppressed too.
    pub(crate) fn pass(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let after_us = now_us.saturating_add(INTERVAL_US);
        let passes = now_us >= next_us
            && self
                .next_us
                .compare_exchange(next_us, after_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if passes {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_at_once_and_then_one_in_every_interval() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.pass(5), Some(0));
        assert_eq!(throttle.pass(6), None);
        assert_eq!(throttle.pass(INTERVAL_US), None);
        assert_eq!(throttle.pass(INTERVAL_US + 5), Some(2));
        assert_eq!(throttle.pass(INTERVAL_US + 6), None);
    }
}
