//! How a limiter is made.

use balde_core::Limit;

use crate::clock::Clock;
use crate::error::BuildError;
use crate::limiter::RateLimiter;
use crate::store::memory::{KEYS_MAX_MAX, Table};

/// Keys that a memory store keeps unless told otherwise: about 35 MB when they are all there.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// Collects what a [`RateLimiter`] needs. Only the limit has no default.
///
/// ```
/// use balde::{Clock, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = RateLimiter::builder()
///     .name("per-user")
///     .limit("1200/min burst 36000 stepwise")
///     .keys_max(100_000)
///     .clock(Clock::cached(Duration::from_millis(1)))
///     .build()?;
/// assert!(limiter.blocking().check("alice").is_allowed());
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    name: String,
    limit: Result<Limit, BuildError>,
    keys_max: usize,
    clock: Option<Clock>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            name: "default".to_owned(),
            limit: Err(BuildError::NoLimit),
            keys_max: KEYS_MAX_DEFAULT,
            clock: None,
        }
    }

    /// The limit: a [`Limit`], or its text.
    pub fn limit<L>(mut self, limit: L) -> Self
    where
        L: TryInto<Limit>,
        L::Error: Into<BuildError>,
    {
        self.limit = limit.try_into().map_err(Into::into);
        self
    }

    /// What the limiter is called where several meet, and in logs and metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The most keys to keep. When a new key would be one too many, the bucket that is nearest to
    /// full goes first; [`RateLimiter::memory_stats`] counts it.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max;
        self
    }

    /// The clock; [`Clock::precise`] unless told otherwise.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The limiter, or what is wrong.
    pub fn build(self) -> Result<RateLimiter, BuildError> {
        let limit = self.limit?;
        let keys_max = self.keys_max;
        if !(1..=KEYS_MAX_MAX).contains(&keys_max) {
            return Err(BuildError::KeysMax { keys_max });
        }
        let clock = self.clock.unwrap_or_default();
        let table = Table::new(limit, keys_max, clock.now_us());
        Ok(RateLimiter::of_memory(self.name, clock, table))
    }
}
