//! When to try again.

use std::time::Duration;

use crate::sink::SendError;

/// How long to wait after a failed attempt: twice as long each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

/// A whole, in the thousandths that chance is given in.
pub(crate) const WHOLE_PER_MILLE: u32 = 1_000;

impl Backoff {
    /// Waits `first` after the first failure, never more than `longest`, unless the receiver asks
    /// for more. Nothing if that makes no sense.
    pub fn new(first: Duration, longest: Duration) -> Option<Self> {
        let is_sane = first >= Duration::from_millis(1)
            && longest >= first
            && longest <= Duration::from_secs(86_400);
        is_sane.then_some(Self { first, longest })
    }

    /// The wait after a failure that `attempts` others came before. `chance_per_mille` shortens it
    /// by up to a half, so that messages that failed together do not come back together.
    ///
    /// What cannot pass by itself waits longest, whatever chance says. A receiver that asks to be
    /// left alone is.
    pub fn wait(&self, attempts: u32, failure: &SendError, chance_per_mille: u32) -> Duration {
        let wait = if failure.is_transient() {
            let doubled = 1_u32
                .checked_shl(attempts)
                .map(|n| self.first.saturating_mul(n));
            let wait = doubled.map_or(self.longest, |wait| wait.min(self.longest));
            let chance = chance_per_mille.min(WHOLE_PER_MILLE);
            wait.saturating_sub(wait / 2 * chance / WHOLE_PER_MILLE)
        } else {
            self.longest
        };
        wait.max(failure.retry_after().unwrap_or_default())
    }
}

impl Default for Backoff {
    /// A second, doubling to five minutes.
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
    use crate::sink::SendErrorKind;

    fn status(status: u16, retry_after_s: Option<u64>) -> SendError {
        let answer = String::new();
        SendError::new(SendErrorKind::Status { status, answer })
            .retry_after_at_most(retry_after_s.map(Duration::from_secs))
    }

    #[test]
    fn waits_double_up_to_the_longest_and_chance_takes_at_most_half() {
        let backoff = Backoff::default();
        let away = SendError::new(SendErrorKind::Timeout);
        let seconds = |attempts, chance| backoff.wait(attempts, &away, chance).as_millis();
        let full = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(|s| s * 1_000);
        for (attempts, expected) in (0..).zip(full) {
            assert_eq!(seconds(attempts, 0), expected);
            assert_eq!(seconds(attempts, WHOLE_PER_MILLE), expected / 2);
        }
        for attempts in [31, 32, 33, u32::MAX] {
            assert_eq!(seconds(attempts, 0), 300_000);
        }
    }

    #[test]
    fn a_receiver_is_left_alone_for_as_long_as_it_asks() {
        let backoff = Backoff::default();
        for chance in [0, 500, 1_000] {
            let wait = backoff.wait(0, &status(429, Some(90)), chance);
            assert_eq!(wait, Duration::from_secs(90));
            // It may also ask for less than it would get, which costs nothing to grant it.
            let wait = backoff.wait(20, &status(503, Some(1)), chance);
            assert!(wait >= Duration::from_secs(150));
        }
    }

    #[test]
    fn a_letter_that_is_refused_waits_longest_from_the_first_time() {
        let backoff = Backoff::default();
        for chance in [0, 500, 1_000] {
            let wait = backoff.wait(0, &status(400, None), chance);
            assert_eq!(wait, Duration::from_secs(300));
        }
    }

    #[test]
    fn patience_that_makes_no_sense_is_none() {
        let ms = Duration::from_millis;
        assert!(Backoff::new(ms(1), ms(1)).is_some());
        assert!(Backoff::new(Duration::ZERO, ms(1)).is_none());
        assert!(Backoff::new(ms(2), ms(1)).is_none());
        assert!(Backoff::new(ms(1), Duration::MAX).is_none());
    }
}
