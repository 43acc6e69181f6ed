//! Whether an upstream is worth asking: while it is down, requests fail at once instead of each
//! waiting for a timeout.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use balde::Backoff;
use tokio::time::Instant;

/// How many timeouts in a row, without an answer in between, mean that an upstream is down.
const TIMEOUTS_MAX: u32 = 5;

const BACKOFF: Backoff =
    match Backoff::new(Duration::from_millis(100), Duration::from_millis(2_000)) {
        Some(backoff) => backoff,
        None => panic!("the delays are in range"),
    };

/// The health of an upstream.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    /// Consecutive failed connections.
    failures: AtomicU32,
    /// Consecutive requests without an answer.
    timeouts: AtomicU32,
    /// Until when it counts as down, in microseconds after the start.
    down_until_us: AtomicU64,
    /// Whether a request is finding out if it is up again.
    is_probed: AtomicBool,
}

/// What may be done with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It is up.
    Go,
    /// It was down; this request finds out whether it still is.
    Probe,
    /// It is down.
    Down,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            failures: AtomicU32::new(0),
            timeouts: AtomicU32::new(0),
            down_until_us: AtomicU64::new(0),
            is_probed: AtomicBool::new(false),
        }
    }

    /// Whether a request may be sent, or a connection opened.
    pub(crate) fn permit(&self) -> Permit {
        let down_until_us = self.down_until_us.load(Ordering::Acquire);
        if down_until_us == 0 {
            return Permit::Go;
        }
        if self.now_us() < down_until_us || self.is_probed.swap(true, Ordering::AcqRel) {
            return Permit::Down;
        }
        Permit::Probe
    }

    /// A connection was opened. An upstream that accepts connections and answers nothing stays down.
    pub(crate) fn connected(&self) {
        if self.timeouts.load(Ordering::Relaxed) < TIMEOUTS_MAX {
            self.is_back();
        }
    }

    /// A response arrived.
    pub(crate) fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
        self.is_back();
    }

    fn is_back(&self) {
        if self.down_until_us.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.down_until_us.store(0, Ordering::Release);
            self.is_probed.store(false, Ordering::Release);
        }
    }

    /// A connection could not be opened.
    pub(crate) fn failed(&self) {
        let down_until_us = self.down_until_us.load(Ordering::Acquire);
        if self.now_us() < down_until_us {
            // One of several requests that found out at the same time.
            return;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let delay = u64::try_from(BACKOFF.delay(failures).as_micros()).unwrap_or(u64::MAX);
        let until_us = self.now_us().saturating_add(delay).max(1);
        self.down_until_us.store(until_us, Ordering::Release);
        self.is_probed.store(false, Ordering::Release);
    }

    /// A request was not answered in time.
    pub(crate) fn timed_out(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.failed();
        }
    }

    /// A probe ended, with or without a result.
    pub(crate) fn probe_ended(&self) {
        self.is_probed.store(false, Ordering::Release);
    }

    /// Whether it was found to be down a moment ago. Nobody need ask the upstream for this to end, so
    /// that a gateway that gets no requests because of it becomes ready again.
    pub(crate) fn is_down_now(&self) -> bool {
        self.now_us() < self.down_until_us.load(Ordering::Acquire)
    }

    /// Whether it counts as up.
    pub(crate) fn is_up(&self) -> bool {
        self.down_until_us.load(Ordering::Acquire) == 0
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dead_upstream_is_probed_by_one_request_at_a_time() {
        let health = Health::new();
        assert_eq!(health.permit(), Permit::Go);
        health.failed();
        assert_eq!(health.permit(), Permit::Down);
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(health.permit(), Permit::Probe);
        assert_eq!(health.permit(), Permit::Down);
        health.failed();
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(health.permit(), Permit::Down, "the second delay is longer");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(health.permit(), Permit::Probe);
        health.connected();
        assert_eq!(health.permit(), Permit::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fail_together_count_as_one_failure() {
        let health = Health::new();
        for _ in 0..64 {
            health.failed();
        }
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(health.permit(), Permit::Probe);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_an_answer_take_it_down_after_some() {
        let health = Health::new();
        for _ in 1..TIMEOUTS_MAX {
            health.timed_out();
            health.connected();
            assert!(health.is_up());
        }
        health.timed_out();
        assert!(!health.is_up());
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(health.permit(), Permit::Probe);
        health.connected();
        assert!(
            !health.is_up(),
            "it accepts connections, but answers nothing"
        );
        health.timed_out();
        assert_eq!(health.permit(), Permit::Down);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(health.permit(), Permit::Probe);
        health.answered();
        assert!(health.is_up());
    }
}
