//! Exponential backoff: the delays between attempts.

use std::time::Duration;

/// Delays between attempts: the first one, doubled after every failure up to the longest.
///
/// ```
/// use std::time::Duration;
///
/// let backoff = balde::Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).unwrap();
/// let delays: Vec<_> = backoff.delays().take(5).map(|delay| delay.as_millis()).collect();
/// assert_eq!(delays, [100, 200, 400, 800, 1_000]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Starts with `first`, at least a millisecond, and doubles up to `longest`, at most a day.
    /// Returns `None` if either is out of range or `longest` is shorter than `first`.
    pub const fn new(first: Duration, longest: Duration) -> Option<Self> {
        let is_valid = first.as_nanos() >= 1_000_000
            && longest.as_nanos() >= first.as_nanos()
            && longest.as_secs() <= 86_400;
        if is_valid {
            Some(Self { first, longest })
        } else {
            None
        }
    }

    /// Returns the longest delay.
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the delay after a failure that `failures` others preceded.
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = 1_u32
            .checked_shl(failures)
            .map(|factor| self.first.saturating_mul(factor));
        doubled.map_or(self.longest, |delay| delay.min(self.longest))
    }

    /// Returns all delays in order, without an end.
    pub fn delays(self) -> impl Iterator<Item = Duration> + Send {
        (0..=u32::MAX)
            .cycle()
            .map(move |failures| self.delay(failures))
    }
}

impl Default for Backoff {
    /// One second, doubled up to five minutes.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(300),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(Duration::from_secs);
        for (failures, expected) in (0..).zip(expected) {
            assert_eq!(backoff.delay(failures), expected);
        }
        for failures in [31, 32, 33, u32::MAX] {
            assert_eq!(backoff.delay(failures), Duration::from_secs(300));
        }
    }

    #[test]
    fn delays_out_of_range_are_rejected() {
        let ms = Duration::from_millis;
        assert!(Backoff::new(ms(1), ms(1)).is_some());
        assert!(Backoff::new(Duration::ZERO, ms(1)).is_none());
        assert!(Backoff::new(ms(2), ms(1)).is_none());
        assert!(Backoff::new(ms(1), Duration::MAX).is_none());
    }
}
