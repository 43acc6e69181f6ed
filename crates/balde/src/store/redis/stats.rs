//! The counters of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::StoreFailure;

/// Counters of a [`RedisStore`](super::RedisStore) since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Whether a circuit breaker is open: [`OnFailure`](crate::OnFailure) then decides without a call
    /// to Redis. A Cluster has one breaker for each range of slots; this is true if any is open.
    pub is_open: bool,
    /// How often the circuit breaker opened.
    pub opened_total: u64,
    /// Calls sent to Redis. Calls that the open circuit breaker rejected do not count.
    pub calls_total: u64,
    /// Decisions made by [`OnFailure`](crate::OnFailure).
    pub fallbacks_total: u64,
    /// How often the script was sent again because the server no longer had it (`NOSCRIPT`).
    pub reloads_total: u64,
    /// Connections that were opened.
    pub connects_total: u64,
    /// Attempts to open a connection. In a Cluster, each is one to all nodes.
    pub connect_attempts_total: u64,
    pub(super) failures: [u64; StoreFailure::ALL.len()],
}

impl RedisStats {
    /// Calls that failed in this way.
    pub fn failures(&self, failure: StoreFailure) -> u64 {
        self.failures[failure.index()]
    }

    /// All counts, in the order of [`StoreFailure::ALL`].
    #[cfg(feature = "prometheus")]
    pub(crate) fn failure_counts(&self) -> [u64; StoreFailure::ALL.len()] {
        self.failures
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

    /// The counters that are kept here; the others are zero.
    pub(super) fn read(&self) -> RedisStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RedisStats {
            opened_total: read(&self.opened),
            calls_total: read(&self.calls),
            fallbacks_total: read(&self.fallbacks),
            reloads_total: read(&self.reloads),
            failures: self.failures.each_ref().map(read),
            ..RedisStats::default()
        }
    }
}

pub(super) fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
