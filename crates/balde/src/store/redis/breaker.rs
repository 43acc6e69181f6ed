//! Stops asking a store that does not answer, so that its outage costs its users microseconds.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::failure::StoreFailure;

/// Failures in a row that open it.
const FAILURES_MAX: u32 = 3;

/// Until the first look after it has opened, and the longest between two.
const PROBE_FIRST: Duration = Duration::from_millis(50);
const PROBE_MAX: Duration = Duration::from_millis(500);

/// Closed, it counts failures in a row. Open, it lets nobody through, and one task at a time looks
/// whether the store is back.
pub(super) struct Breaker {
    is_open: AtomicBool,
    failures: AtomicU32,
    /// Goes up with every change, so that calls from before it count no more.
    generation: AtomicU64,
    started: Instant,
    next_probe_us: AtomicU64,
    prober: Mutex<Option<AbortHandle>>,
}

/// Leave to ask. It has to come back with the outcome.
#[derive(Clone, Copy)]
pub(super) struct Leave {
    generation: u64,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self {
            is_open: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            started: Instant::now(),
            next_probe_us: AtomicU64::new(0),
            prober: Mutex::new(None),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(super) fn admit(&self) -> Result<Leave, StoreFailure> {
        let generation = self.generation.load(Ordering::Acquire);
        if self.is_open() {
            return Err(StoreFailure::BreakerOpen);
        }
        Ok(Leave { generation })
    }

    pub(super) fn succeeded(&self) {
        // Nearly always zero already: then nobody's cache line is touched.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Whether this failure opened the breaker. Then the caller sends for a prober.
    pub(super) fn failed(&self, leave: Leave, failure: StoreFailure) -> bool {
        // A key that holds something foreign says nothing about the store.
        if failure == StoreFailure::Script
            || leave.generation != self.generation.load(Ordering::Acquire)
        {
            return false;
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return false;
        }
        let opens = self
            .is_open
            .compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if opens {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        opens
    }

    pub(super) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.is_open.store(false, Ordering::Release);
    }

    pub(super) fn keep(&self, prober: AbortHandle) {
        *self.prober.lock() = Some(prober);
    }

    /// Says when the next look will be.
    pub(super) fn will_probe_in(&self, wait: Duration) {
        let at = self.started.elapsed() + wait;
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.next_probe_us.store(at_us, Ordering::Relaxed);
    }

    /// How long until it is worth asking again.
    pub(super) fn retry_after(&self) -> Duration {
        if !self.is_open() {
            return PROBE_FIRST;
        }
        let at = Duration::from_micros(self.next_probe_us.load(Ordering::Relaxed));
        // The look itself takes a moment, too.
        at.saturating_sub(self.started.elapsed()) + PROBE_FIRST / 5
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        if let Some(prober) = self.prober.lock().take() {
            prober.abort();
        }
    }
}

/// The waits between looks: short at first, for most outages are.
pub(super) fn probe_waits() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PROBE_FIRST), |wait| Some((*wait * 2).min(PROBE_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_forgets_those_from_before() {
        let breaker = Breaker::new();
        let leave = breaker.admit().unwrap();
        assert!(!breaker.failed(leave, StoreFailure::Timeout));
        assert!(!breaker.failed(leave, StoreFailure::Timeout));
        breaker.succeeded();
        assert!(!breaker.failed(leave, StoreFailure::Timeout));
        assert!(!breaker.failed(leave, StoreFailure::Script));
        assert!(!breaker.failed(leave, StoreFailure::Disconnected));
        assert!(breaker.failed(leave, StoreFailure::ReadOnly));
        assert!(breaker.admit().is_err());
        // Only one of those in flight opens it.
        assert!(!breaker.failed(leave, StoreFailure::Timeout));

        breaker.close();
        for _ in 0..10 {
            assert!(!breaker.failed(leave, StoreFailure::Timeout));
        }
        assert!(breaker.admit().is_ok());
    }

    #[test]
    fn looks_get_rarer_but_never_rare() {
        let waits: Vec<_> = probe_waits().take(6).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 500, 500]);
    }
}
