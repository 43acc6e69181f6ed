//! What a sink has done, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one sink since the start. They only ever grow, but for what waits.
#[derive(Debug, Default)]
pub struct Counters {
    delivered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    waiting: AtomicU64,
}

impl Counters {
    /// Letters that arrived.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Attempts that failed, refusals among them.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Attempts that failed in a way that cannot pass by itself: somebody has to look.
    pub fn rejected(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Letters that waited when the worker looked last, at most a few seconds ago.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn count_delivered(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self, is_transient: bool) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.refused
            .fetch_add(u64::from(!is_transient), Ordering::Relaxed);
    }

    pub(crate) fn set_waiting(&self, messages: u64) {
        self.waiting.store(messages, Ordering::Relaxed);
    }
}
