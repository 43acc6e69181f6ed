//! Waits between attempts.

use std::time::Duration;

/// Exponential backoff without an end: each wait is twice the one before, up to a maximum.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        let waits: Vec<_> = backoff.take(6).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 500, 500]);
    }
}
