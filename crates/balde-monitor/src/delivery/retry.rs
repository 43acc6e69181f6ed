//! When a failed delivery is tried again.

use std::time::Duration;

use crate::sink::SendError;
use balde::Backoff;

/// The largest value of a jitter, which is given in thousandths.
pub(super) const JITTER_MAX: u32 = 1_000;

/// Returns the delay after a failed attempt that `attempts` others preceded.
///
/// A transient error is retried with exponential backoff. `jitter`, a random number up to
/// [`JITTER_MAX`], shortens the delay by up to a half, so that messages that failed together are not
/// retried together. Any other error waits for the longest delay. The delay is never shorter than the
/// receiver's Retry-After.
pub(super) fn delay(backoff: Backoff, attempts: u32, error: &SendError, jitter: u32) -> Duration {
    let delay = if error.is_transient() {
        let delay = backoff.delay(attempts);
        delay.saturating_sub(delay / 2 * jitter.min(JITTER_MAX) / JITTER_MAX)
    } else {
        backoff.longest()
    };
    delay.max(error.retry_after().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::SendErrorKind;

    fn status(status: u16, retry_after_s: Option<u64>) -> SendError {
        let body = String::new();
        SendError::new(SendErrorKind::Status { status, body })
            .with_retry_after(retry_after_s.map(Duration::from_secs))
    }

    #[test]
    fn delays_double_up_to_the_longest_and_jitter_takes_at_most_half() {
        let backoff = Backoff::default();
        let timeout = SendError::new(SendErrorKind::Timeout);
        let ms = |attempts, jitter| delay(backoff, attempts, &timeout, jitter).as_millis();
        let full = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(|s| s * 1_000);
        for (attempts, expected) in (0..).zip(full) {
            assert_eq!(ms(attempts, 0), expected);
            assert_eq!(ms(attempts, JITTER_MAX), expected / 2);
        }
        for attempts in [31, 32, 33, u32::MAX] {
            assert_eq!(ms(attempts, 0), 300_000);
        }
    }

    #[test]
    fn a_retry_after_is_respected() {
        let backoff = Backoff::default();
        for jitter in [0, 500, 1_000] {
            let wait = delay(backoff, 0, &status(429, Some(90)), jitter);
            assert_eq!(wait, Duration::from_secs(90));
            // A shorter one does not shorten the delay.
            let wait = delay(backoff, 20, &status(503, Some(1)), jitter);
            assert!(wait >= Duration::from_secs(150));
        }
    }

    #[test]
    fn a_rejected_message_waits_longest_from_the_first_time() {
        let backoff = Backoff::default();
        for jitter in [0, 500, 1_000] {
            let wait = delay(backoff, 0, &status(400, None), jitter);
            assert_eq!(wait, Duration::from_secs(300));
        }
    }
}
