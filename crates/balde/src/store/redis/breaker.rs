//! The circuit breaker: while a store does not answer, calls fail in microseconds instead of after
//! a timeout.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::failure::StoreFailure;

/// Consecutive failures that open the breaker.
const FAILURES_MAX: u32 = 3;

/// The wait before the first probe after the breaker has opened, and the longest between probes.
const PROBE_FIRST: Duration = Duration::from_millis(50);
const PROBE_MAX: Duration = Duration::from_millis(500);

/// Closed, it counts consecutive failures. Open, it rejects all calls, and one task probes the
/// store.
pub(super) struct Breaker {
    is_open: AtomicBool,
    failures: AtomicU32,
    /// Incremented with every change of state, so that failures of earlier calls are ignored.
    generation: AtomicU64,
    started: Instant,
    next_probe_us: AtomicU64,
    prober: Mutex<Option<AbortHandle>>,
}

/// Permission to make one call. It is handed back with the result of the call.
#[derive(Clone, Copy)]
pub(super) struct Permit {
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

    pub(super) fn admit(&self) -> Result<Permit, StoreFailure> {
        let generation = self.generation.load(Ordering::Acquire);
        if self.is_open() {
            return Err(StoreFailure::BreakerOpen);
        }
        Ok(Permit { generation })
    }

    pub(super) fn succeeded(&self) {
        // Nearly always zero already: then the cache line is only read.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure. Returns whether it opened the breaker; then the caller starts a prober.
    pub(super) fn failed(&self, permit: Permit, failure: StoreFailure) -> bool {
        // One key with a foreign value says nothing about the others.
        if failure == StoreFailure::ForeignValue
            || permit.generation != self.generation.load(Ordering::Acquire)
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

    /// Records when the next probe will be.
    pub(super) fn will_probe_in(&self, wait: Duration) {
        let at = self.started.elapsed() + wait;
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.next_probe_us.store(at_us, Ordering::Relaxed);
    }

    /// How long until a call may succeed again.
    pub(super) fn retry_after(&self) -> Duration {
        if !self.is_open() {
            return PROBE_FIRST;
        }
        let at = Duration::from_micros(self.next_probe_us.load(Ordering::Relaxed));
        // The probe itself takes a moment too.
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

/// The waits between probes: short at first, because most outages are short.
pub(super) fn probe_waits() -> impl Iterator<Item = Duration> + Send {
    const PROBES: Backoff = Backoff::new(PROBE_FIRST, PROBE_MAX).expect("the delays are in range");
    PROBES.delays()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_forgets_those_from_before() {
        let breaker = Breaker::new();
        let permit = breaker.admit().unwrap();
        assert!(!breaker.failed(permit, StoreFailure::Timeout));
        assert!(!breaker.failed(permit, StoreFailure::Timeout));
        breaker.succeeded();
        assert!(!breaker.failed(permit, StoreFailure::Timeout));
        assert!(!breaker.failed(permit, StoreFailure::ForeignValue));
        assert!(!breaker.failed(permit, StoreFailure::Disconnected));
        assert!(breaker.failed(permit, StoreFailure::ReadOnly));
        assert!(breaker.admit().is_err());
        // Only one of those in flight opens it.
        assert!(!breaker.failed(permit, StoreFailure::Timeout));

        breaker.close();
        for _ in 0..10 {
            assert!(!breaker.failed(permit, StoreFailure::Timeout));
        }
        assert!(breaker.admit().is_ok());
    }

    #[test]
    fn three_failures_of_any_kind_open_it_except_those_of_one_key() {
        for failure in StoreFailure::ALL {
            let breaker = Breaker::new();
            let permit = breaker.admit().unwrap();
            for _ in 0..FAILURES_MAX {
                breaker.failed(permit, failure);
            }
            assert_eq!(
                breaker.is_open(),
                failure != StoreFailure::ForeignValue,
                "{failure:?}"
            );
        }
    }
}
