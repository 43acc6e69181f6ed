//! Log lines about requests that an upstream did not answer: at most one a second for each cause, and
//! one when it is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use balde::telemetry::LogThrottle;

/// An upstream answers again once no request has failed for this long.
const OVER_AFTER: Duration = Duration::from_secs(1);

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    Down,
    Connect,
    TooMany,
    Timeout,
    Lost,
}

const CAUSES: usize = 5;

/// The failures of one upstream.
#[derive(Debug)]
pub(crate) struct FailureLog {
    upstream: String,
    /// Host and port.
    address: String,
    started: Instant,
    throttles: [LogThrottle; CAUSES],
    /// Failures since it last answered; zero while it answers.
    failed: AtomicU64,
    /// When the first and the last of them happened, in microseconds after the start.
    first_us: AtomicU64,
    last_us: AtomicU64,
}

/// What is over when an upstream answers again.
#[derive(Debug, PartialEq, Eq)]
struct Recovery {
    failed: u64,
    seconds: u64,
}

impl FailureLog {
    pub(crate) fn new(upstream: &str, address: &str) -> Self {
        Self {
            upstream: upstream.to_owned(),
            address: address.to_owned(),
            started: Instant::now(),
            throttles: Default::default(),
            failed: AtomicU64::new(0),
            first_us: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
        }
    }

    /// A request of a route was not answered.
    pub(crate) fn failed(&self, cause: FailureCause, route: &str, what: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.failed_at(cause, self.now_us()) {
            let (upstream, address) = (&self.upstream, &self.address);
            tracing::warn!(
                event_type = "upstream_error",
                upstream,
                address,
                route,
                suppressed,
                "upstream {upstream} at {address}: {what}"
            );
        }
    }

    /// A request was answered. Costs one load while all are.
    pub(crate) fn answered(&self) {
        if self.failed.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(Recovery { failed, seconds }) = self.answered_at(self.now_us()) {
            let (upstream, address) = (&self.upstream, &self.address);
            tracing::info!(
                event_type = "upstream_recovered",
                upstream,
                address,
                failed,
                seconds,
                "upstream {upstream} at {address} answers again after {seconds} s, {failed} requests failed"
            );
        }
    }

    /// Counts a failure. Returns how many were suppressed if it is to be logged.
    fn failed_at(&self, cause: FailureCause, now_us: u64) -> Option<u64> {
        self.last_us.store(now_us, Ordering::Relaxed);
        if self.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_us.store(now_us, Ordering::Relaxed);
        }
        self.throttles[cause as usize].allow(now_us)
    }

    /// Returns what is over, once no request has failed for [`OVER_AFTER`].
    fn answered_at(&self, now_us: u64) -> Option<Recovery> {
        let last_us = self.last_us.load(Ordering::Relaxed);
        if Duration::from_micros(now_us.saturating_sub(last_us)) < OVER_AFTER {
            return None;
        }
        let failed = self.failed.swap(0, Ordering::Relaxed);
        let first_us = self.first_us.load(Ordering::Relaxed);
        (failed > 0).then(|| Recovery {
            failed,
            seconds: now_us.saturating_sub(first_us) / 1_000_000,
        })
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_upstream_is_one_line_a_second_for_each_cause_and_one_when_it_is_over() {
        let log = FailureLog::new("backend", "127.0.0.1:9000");
        let ms = |ms: u64| ms * 1_000;
        assert_eq!(log.failed_at(FailureCause::Lost, ms(1)), Some(0));
        for now in 2..100 {
            assert_eq!(log.failed_at(FailureCause::Lost, ms(now)), None);
        }
        assert_eq!(log.failed_at(FailureCause::Timeout, ms(100)), Some(0));
        assert_eq!(log.answered_at(ms(101)), None, "it may fail again at once");
        assert_eq!(log.failed_at(FailureCause::Lost, ms(12_000)), Some(98));
        assert_eq!(log.answered_at(ms(12_999)), None);
        let over = Recovery {
            failed: 101,
            seconds: 12,
        };
        assert_eq!(log.answered_at(ms(13_000)), Some(over));
        assert_eq!(log.answered_at(ms(14_000)), None, "it is said once");
    }
}
