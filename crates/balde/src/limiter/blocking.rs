//! The limiter for callers without `await`.

#[cfg(feature = "tokio")]
use std::time::Duration;

use balde_core::Command;

use super::{RateLimiter, Target};
use crate::decision::Decision;
#[cfg(feature = "tokio")]
use crate::error::AcquireError;
use crate::error::{Error, TierError};
use crate::idempotency::OpId;

/// A [`RateLimiter`] for callers without `await`: the same methods on the same buckets. Returned by
/// [`RateLimiter::blocking`].
///
/// ```
/// let limiter = balde::RateLimiter::new("2/min")?;
/// let limiter = limiter.blocking();
/// assert!(limiter.check_n("alice", 2).is_allowed());
/// assert!(limiter.check("alice").retry_after().unwrap().as_secs() <= 30);
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Blocking<'l>(&'l RateLimiter);

impl<'l> Blocking<'l> {
    pub(super) fn new(limiter: &'l RateLimiter) -> Self {
        Self(limiter)
    }

    /// Takes one token.
    #[inline]
    pub fn check(self, key: impl AsRef<[u8]>) -> Decision {
        self.0.decide_blocking(key.as_ref(), Command::Take { n: 1 })
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub fn check_n(self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.0.decide_blocking(key.as_ref(), Command::Take { n })
    }

    /// Takes as many tokens as are available, at most `n`; [`Decision::moved`] returns how many.
    #[inline]
    pub fn take_up_to(self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.0
            .decide_blocking(key.as_ref(), Command::TakeUpTo { n })
    }

    /// Blocks the thread until the bucket has `n` tokens, and takes them; see
    /// [`RateLimiter::acquire`].
    #[cfg(feature = "tokio")]
    pub fn acquire(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, AcquireError> {
        self.0.wait_for_tokens_blocking(key.as_ref(), n, None)
    }

    /// [`acquire`](Blocking::acquire) with a time limit; see [`RateLimiter::acquire_within`].
    #[cfg(feature = "tokio")]
    pub fn acquire_within(
        self,
        key: impl AsRef<[u8]>,
        n: u64,
        within: Duration,
    ) -> Result<Decision, AcquireError> {
        self.0
            .wait_for_tokens_blocking(key.as_ref(), n, Some(within))
    }

    /// Moves a key to a tier, as [`RateLimiter::set_tier`] does.
    pub fn set_tier(self, key: impl AsRef<[u8]>, tier: &str) -> Result<(), TierError> {
        self.0.assign_blocking(key.as_ref(), Some(tier))
    }

    /// Moves a key back to the limit of keys without a tier.
    pub fn clear_tier(self, key: impl AsRef<[u8]>) -> Result<(), TierError> {
        self.0.assign_blocking(key.as_ref(), None)
    }

    /// Forgets a key, as [`RateLimiter::forget`] does.
    pub fn forget(self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.0.forget_blocking(key.as_ref())
    }

    /// Reads a bucket without changing it.
    #[inline]
    pub fn peek(self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()), Command::Peek)
    }

    /// Debits `n` tokens for work that has already happened, into debt if the bucket has fewer.
    #[inline]
    pub fn charge(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()), Command::Charge { n })
    }

    /// Gives `n` tokens back, never above capacity.
    #[inline]
    pub fn credit(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()), Command::Credit { n })
    }

    /// [`charge`](Blocking::charge) that happens once per `id`, as [`RateLimiter::charge_once`] does.
    #[inline]
    pub fn charge_once(self, key: impl AsRef<[u8]>, n: u64, id: &OpId) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()).once(id), Command::Charge { n })
    }

    /// [`credit`](Blocking::credit) that happens once per `id`, as [`RateLimiter::credit_once`] does.
    #[inline]
    pub fn credit_once(self, key: impl AsRef<[u8]>, n: u64, id: &OpId) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()).once(id), Command::Credit { n })
    }

    /// Sets a bucket to a level that is known from elsewhere; negative is debt.
    #[inline]
    pub fn set_level(self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.0
            .run_blocking(&Target::new(key.as_ref()), Command::SetLevel { level })
    }
}
