//! Counters of one sink, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one sink since the start of the process, and the size of its backlog.
#[derive(Debug, Default)]
pub struct Counters {
    delivered: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    waiting: AtomicU64,
    waiting_in_memory: AtomicU64,
}

impl Counters {
    /// Returns the number of messages delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Returns the number of failed attempts, rejections included.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of attempts that failed with an error that is not transient: the sink's
    /// settings or the receiver have to be changed.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Returns the number of undelivered messages when the backlog was last read, at most 30
    /// seconds ago.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of undelivered messages in memory, which the outbox does not hold because
    /// the database accepts no writes.
    pub fn waiting_in_memory(&self) -> u64 {
        self.waiting_in_memory.load(Ordering::Relaxed)
    }

    pub(super) fn set_waiting_in_memory(&self, messages: usize) {
        let messages = u64::try_from(messages).unwrap_or(u64::MAX);
        self.waiting_in_memory.store(messages, Ordering::Relaxed);
    }

    pub(super) fn count_delivered(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self, is_transient: bool) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.rejected
            .fetch_add(u64::from(!is_transient), Ordering::Relaxed);
    }

    pub(super) fn set_waiting(&self, messages: u64) {
        self.waiting.store(messages, Ordering::Relaxed);
    }
}
