//! A request for tokens, as a part of a decision over several buckets.

use super::RateLimiter;

/// A request for tokens of one key from one limiter, for [`check_all`](crate::check_all) and
/// [`Hold`](crate::Hold). Created by [`RateLimiter::request`] and [`RateLimiter::request_n`].
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    pub(crate) limiter: &'a RateLimiter,
    pub(crate) key: &'a [u8],
    pub(crate) n: u64,
}

impl TokenRequest<'_> {
    /// Returns whether both take from the same bucket.
    pub(crate) fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.store(), other.limiter.store()) && self.key == other.key
    }
}
