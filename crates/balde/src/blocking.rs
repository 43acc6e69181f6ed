//! The limiter for callers who have no `await`.

use balde_core::Command;

use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::RateLimiter;
use crate::once::OpId;

/// A [`RateLimiter`] for callers who have no `await`: the same questions, the same buckets.
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
    pub(crate) fn new(limiter: &'l RateLimiter) -> Self {
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

    /// Takes as many tokens as there are, at most `n`.
    #[inline]
    pub fn take_up_to(self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.0
            .decide_blocking(key.as_ref(), Command::TakeUpTo { n })
    }

    /// Looks at a bucket without touching it.
    #[inline]
    pub fn peek(self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.0.run_blocking(key.as_ref(), Command::Peek, None)
    }

    /// Debits what has already happened, into debt if need be.
    #[inline]
    pub fn charge(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0
            .run_blocking(key.as_ref(), Command::Charge { n }, None)
    }

    /// Gives tokens back, never above capacity.
    #[inline]
    pub fn credit(self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.0
            .run_blocking(key.as_ref(), Command::Credit { n }, None)
    }

    /// [`charge`](Blocking::charge) that happens once, however often it is asked for under this id:
    /// later askers get the first one's answer, whatever they ask to be charged. It is remembered
    /// for [`RateLimiterBuilder::once_ttl`](crate::RateLimiterBuilder::once_ttl).
    #[inline]
    pub fn charge_once(self, key: impl AsRef<[u8]>, n: u64, id: &OpId) -> Result<Decision, Error> {
        self.0
            .run_blocking(key.as_ref(), Command::Charge { n }, Some(id))
    }

    /// [`credit`](Blocking::credit) that happens once, however often it is asked for under this id:
    /// later askers get the first one's answer, whatever they ask to be credited. It is remembered
    /// for [`RateLimiterBuilder::once_ttl`](crate::RateLimiterBuilder::once_ttl).
    #[inline]
    pub fn credit_once(self, key: impl AsRef<[u8]>, n: u64, id: &OpId) -> Result<Decision, Error> {
        self.0
            .run_blocking(key.as_ref(), Command::Credit { n }, Some(id))
    }

    /// Sets a bucket to the level somebody knows it to have; negative is debt.
    #[inline]
    pub fn set_level(self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.0
            .run_blocking(key.as_ref(), Command::SetLevel { level }, None)
    }
}
