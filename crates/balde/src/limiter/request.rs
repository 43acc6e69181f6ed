//! A request for tokens, as a part of a decision over several buckets.

use balde_core::Command;

use super::RateLimiter;

/// A request for tokens of one key from one limiter, for [`check_all`](crate::check_all) and
/// [`Hold`](crate::Hold). Created by [`RateLimiter::request`] and [`RateLimiter::request_n`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a request does nothing until it is decided"]
pub struct TokenRequest<'a> {
    pub(crate) limiter: &'a RateLimiter,
    pub(crate) key: &'a [u8],
    pub(crate) n: u64,
    pub(crate) needed: u64,
    /// Who holds the tokens until they are settled. Otherwise they are taken.
    pub(crate) holder: Option<HolderId>,
}

/// Who holds tokens: in Redis unique among all processes, in memory always zero.
pub(crate) type HolderId = u64;

impl<'a> TokenRequest<'a> {
    pub(crate) const fn new(limiter: &'a RateLimiter, key: &'a [u8], n: u64) -> Self {
        Self {
            limiter,
            key,
            n,
            needed: n,
            holder: None,
        }
    }

    /// Sets how many tokens must be available; by default as many as are requested.
    ///
    /// If more must be available than are requested, the difference is a reserve that this request
    /// leaves to others. If fewer, the bucket may go into debt.
    ///
    /// ```
    /// use balde::{RateLimiter, check_all_blocking};
    ///
    /// let limiter = RateLimiter::new("10/min")?;
    /// let leaves_five = limiter.request_n("alice", 2).needing(7);
    /// assert!(check_all_blocking(&[leaves_five]).is_allowed());
    /// assert!(check_all_blocking(&[leaves_five]).is_allowed());
    /// assert!(!check_all_blocking(&[leaves_five]).is_allowed()); // six are left
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    pub const fn needing(mut self, available: u64) -> Self {
        self.needed = available;
        self
    }

    /// The same request, whose tokens are held until they are settled, if the limiter can.
    pub(crate) fn held(mut self) -> Self {
        self.holder = self.limiter.holder_id();
        self
    }

    pub(crate) const fn command(&self) -> Command {
        let Self { n, needed, .. } = *self;
        match self.holder {
            Some(_) => Command::Hold { n, needed },
            None if needed == n => Command::Take { n },
            None => Command::TakeIf { n, needed },
        }
    }

    /// Returns whether both take from the same bucket.
    pub(crate) fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.store(), other.limiter.store()) && self.key == other.key
    }
}
