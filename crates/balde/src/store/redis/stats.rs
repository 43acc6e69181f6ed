//! What a store has been through, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::StoreFailure;

/// What a [`RedisStore`](super::RedisStore) has been through since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Whether calls are answered by [`OnFailure`](crate::OnFailure) at once, for the keys of at
    /// least one part of the store.
    pub is_open: bool,
    /// How often it came to that.
    pub opened_total: u64,
    /// Calls made to the store; those that were not made because it was open do not count.
    pub calls_total: u64,
    /// Decisions that [`OnFailure`](crate::OnFailure) took.
    pub fallbacks_total: u64,
    /// How often the server had forgotten the script.
    pub reloads_total: u64,
    /// Connections that were made.
    pub connects_total: u64,
    failures: [u64; StoreFailure::ALL.len()],
}

impl RedisStats {
    /// Calls that failed so.
    pub fn failures(&self, failure: StoreFailure) -> u64 {
        self.failures[failure.index()]
    }

    /// Every kind of failure, with the calls that failed so.
    pub fn all_failures(&self) -> impl Iterator<Item = (StoreFailure, u64)> {
        StoreFailure::ALL.into_iter().zip(self.failures)
    }
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) opened: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) fallbacks: AtomicU64,
    pub(super) reloads: AtomicU64,
    failures: [AtomicU64; StoreFailure::ALL.len()],
}

impl Counts {
    pub(super) fn failed(&self, failure: StoreFailure) {
        add_one(&self.failures[failure.index()]);
    }

    pub(super) fn read(&self, is_open: bool, connects_total: u64) -> RedisStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RedisStats {
            is_open,
            opened_total: read(&self.opened),
            calls_total: read(&self.calls),
            fallbacks_total: read(&self.fallbacks),
            reloads_total: read(&self.reloads),
            connects_total,
            failures: self.failures.each_ref().map(read),
        }
    }
}

pub(super) fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
