//! Without the feature `redis` there are no shared stores. Their metrics are there, and zero.

use crate::failure::StoreFailure;
use crate::limiter::RateLimiter;

#[derive(Default)]
pub(super) struct Stores;

#[derive(Clone, Copy, Default)]
pub(super) struct StoreReading {
    pub(super) open: u64,
    pub(super) opened: u64,
    pub(super) calls: u64,
    pub(super) connects: u64,
    pub(super) reloads: u64,
    pub(super) failures: [u64; StoreFailure::ALL.len()],
}

impl Stores {
    #[expect(clippy::unused_self, reason = "as where there are stores")]
    pub(super) fn attach(&self, _limiter: &RateLimiter) {}

    #[expect(clippy::unused_self, reason = "as where there are stores")]
    pub(super) fn read(&self) -> StoreReading {
        StoreReading::default()
    }
}
