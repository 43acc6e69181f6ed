//! What the other side tells, in the order of what it is worth: how long to wait and how much is
//! left, that it is too much, that something failed, that nothing came back.

use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The other side did what was asked, or at least answered as it should.
    Success,
    /// It failed.
    Error,
    /// It did not answer in time.
    Timeout,
    /// It said that this is too much: HTTP's 429 and 503.
    Pushback,
    /// Nobody knows: the request was given up. It counts for nothing.
    Unknown,
}

impl Outcome {
    /// What counts as an error unless the builder is told otherwise: everything but a success and
    /// the unknown.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Timeout | Self::Pushback)
    }
}

/// How a request ended and what the other side said about its limits.
///
/// ```
/// use balde_throttle::{Outcome, Report};
/// use std::time::Duration;
///
/// let slow_down = Report::from(Outcome::Pushback).retry_after(Duration::from_secs(2));
/// let fine = Report::from(Outcome::Success).remaining(40, Duration::from_secs(10));
/// assert_ne!(slow_down, fine);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a report does nothing until it is given to a throttler"]
pub struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) announced: Option<(u64, Duration)>,
}

impl Report {
    /// The other side asked for no request before so long.
    pub const fn retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// The other side said that so many tokens are left until its limit is reset in so long.
    pub const fn remaining(self, tokens: u64, reset: Duration) -> Self {
        Self {
            announced: Some((tokens, reset)),
            ..self
        }
    }
}

impl From<Outcome> for Report {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            retry_after: None,
            announced: None,
        }
    }
}

/// What the other side said about its limits, as far as it still holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brake {
    paused_until_us: u64,
    announced: Option<Announced>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announced {
    left: u64,
    until_us: u64,
}

impl Brake {
    pub(crate) const fn is_off(&self) -> bool {
        self.paused_until_us == 0 && self.announced.is_none()
    }

    pub(crate) const fn is_paused(&self, now_us: u64) -> bool {
        now_us < self.paused_until_us
    }

    /// Takes in what was said. Tokens that were under way when it was said may or may not be in it,
    /// so they are taken to be not.
    pub(crate) fn heed(&mut self, report: &Report, under_way: u64, pause_max_us: u64, now_us: u64) {
        let after = |wait: Duration| {
            let us = crate::health::whole_us(wait).min(pause_max_us);
            now_us.saturating_add(us)
        };
        if let Some(wait) = report.retry_after {
            self.paused_until_us = self.paused_until_us.max(after(wait));
        }
        if let Some((remaining, reset)) = report.announced {
            let left = remaining.saturating_sub(under_way);
            let until_us = after(reset);
            self.announced = Some(Announced { left, until_us });
        }
    }

    /// When `n` tokens may be taken; nothing, if now.
    pub(crate) fn wait_until(&mut self, n: u64, now_us: u64) -> Option<u64> {
        if self.is_off() {
            return None;
        }
        if self.paused_until_us > now_us {
            return Some(self.paused_until_us);
        }
        self.paused_until_us = 0;
        match self.announced {
            Some(announced) if announced.until_us <= now_us => {
                self.announced = None;
                None
            }
            Some(announced) if announced.left < n => Some(announced.until_us),
            _ => None,
        }
    }

    pub(crate) fn took(&mut self, n: u64) {
        if let Some(announced) = &mut self.announced {
            announced.left = announced.left.saturating_sub(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_pause_lasts_as_long_as_was_asked_for_and_no_longer_than_allowed() {
        let mut brake = Brake::default();
        let wait = |s| Report::from(Outcome::Pushback).retry_after(Duration::from_secs(s));
        brake.heed(&wait(2), 0, 60 * SECOND, 0);
        brake.heed(&wait(1), 0, 60 * SECOND, 0);
        assert_eq!(brake.wait_until(1, SECOND), Some(2 * SECOND));
        assert_eq!(brake.wait_until(1, 2 * SECOND), None);
        assert!(brake.is_off());
        brake.heed(&wait(86_400 * 365), 0, 60 * SECOND, 0);
        assert_eq!(brake.wait_until(1, 0), Some(60 * SECOND));
    }

    #[test]
    fn what_is_left_of_the_others_quota_is_not_exceeded_until_it_is_reset() {
        let mut brake = Brake::default();
        let left = Report::from(Outcome::Success).remaining(10, Duration::from_secs(5));
        brake.heed(&left, 4, 60 * SECOND, 0);
        assert_eq!(brake.wait_until(6, 0), None);
        brake.took(6);
        assert_eq!(brake.wait_until(1, SECOND), Some(5 * SECOND));
        assert_eq!(brake.wait_until(1, 5 * SECOND), None);
        assert!(brake.is_off());
    }
}
