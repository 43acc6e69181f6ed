//! The settings of holds.

use std::time::Duration;

use balde_core::OnExpiry;

use crate::error::BuildError;

/// The default of [`Holds::ttl`].
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// The shortest and the longest time to live of holds.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(24 * 3_600);

/// How a limiter keeps the tokens of a [`Hold`](crate::Hold) until it is settled; see
/// [`RateLimiterBuilder::holds`](crate::RateLimiterBuilder::holds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    pub(crate) ttl: Duration,
    pub(crate) on_expiry: OnExpiry,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            ttl: TTL_DEFAULT,
            on_expiry: OnExpiry::Charge,
        }
    }
}

impl Holds {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long Redis keeps what a process holds after the process was last heard of: by default
    /// 30 seconds, at least one second, at most a day. A running process renews its holds, however
    /// long they last. In memory holds end with the process.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets what happens to tokens whose holder was not heard of in time: by default they are charged,
    /// because the work may have been done.
    #[must_use]
    pub const fn on_expiry(mut self, on_expiry: OnExpiry) -> Self {
        self.on_expiry = on_expiry;
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if (TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            Ok(())
        } else {
            Err(BuildError::HoldTtl { ttl: self.ttl })
        }
    }
}
