//! How a request ended, as callers report it.

use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The server answered as it should.
    Success,
    /// The request failed.
    Error,
    /// The server did not answer in time.
    Timeout,
    /// The server refused because of its load or its limits, as with HTTP status 429 or 503.
    Pushback,
    /// The request was cancelled, so its outcome is unknown. It counts neither as a success nor as an
    /// error.
    Unknown,
}

impl Outcome {
    /// Returns true for `Error`, `Timeout` and `Pushback`: what counts as an error by default. See
    /// [`ThrottlerBuilder::counts_as_error`](crate::ThrottlerBuilder::counts_as_error).
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Timeout | Self::Pushback)
    }
}

/// How a request ended, with what the server said about its own limits.
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
#[must_use = "a report does nothing until it is passed to a throttler"]
pub struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) retry_after: Option<Duration>,
    /// Tokens that the server has left, and the time until it resets them.
    pub(crate) remaining: Option<(u64, Duration)>,
}

impl Report {
    /// Adds the server's `Retry-After`: it accepts no further request before `wait` has passed. The
    /// partition pauses for that time.
    pub const fn retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// Adds the server's remaining quota (`RateLimit`): it has `tokens` left until it resets its
    /// limit in `reset`. The partition sends no more than that before the reset.
    pub const fn remaining(self, tokens: u64, reset: Duration) -> Self {
        Self {
            remaining: Some((tokens, reset)),
            ..self
        }
    }
}

impl From<Outcome> for Report {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            retry_after: None,
            remaining: None,
        }
    }
}
