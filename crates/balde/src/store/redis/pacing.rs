//! When a store may open connections: at once while that succeeds, with exponential backoff while it
//! fails, and never in a storm.

use std::time::Duration;

use balde_core::{Command, Limit, State};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backoff::Backoff;

/// The delays between attempts while none succeeds. The longest is short enough that decisions come
/// from the server again within a second of its return.
const DELAYS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400))
    .expect("the delays are in range");

/// Attempts per second, however they end: a server that accepts connections and drops them at once
/// does not let an attempt fail.
const ATTEMPTS_PER_SECOND: u64 = 8;

/// The pace of all connections of one store.
pub(super) struct ConnectPacer {
    started: Instant,
    pace: Mutex<Pace>,
}

impl ConnectPacer {
    /// Up to `connections` attempts may begin at once.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            started: Instant::now(),
            pace: Mutex::new(Pace::new(connections)),
        }
    }

    /// Begins an attempt, or returns `None` if none may begin yet.
    pub(super) fn try_begin(&self) -> Option<Begun> {
        let now = self.now();
        self.pace.lock().try_begin(now).then_some(Begun(now))
    }

    pub(super) fn succeeded(&self) {
        self.pace.lock().failures = 0;
    }

    pub(super) fn failed(&self, begun: Begun) {
        self.pace.lock().failed(begun.0);
    }

    /// How long until the next attempt may begin.
    pub(super) fn wait(&self) -> Duration {
        self.pace.lock().wait(self.now())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// When an attempt began.
#[derive(Clone, Copy)]
pub(super) struct Begun(Duration);

/// Pure: the time since the store was built is an argument.
struct Pace {
    /// Attempts that failed since one succeeded.
    failures: u32,
    due: Duration,
    limit: Limit,
    attempts: Option<State>,
}

impl Pace {
    fn new(connections: usize) -> Self {
        let second = Duration::from_secs(1);
        let limit = Limit::bucket_of(connections as u64, ATTEMPTS_PER_SECOND, second);
        Self {
            failures: 0,
            due: Duration::ZERO,
            limit: limit.expect("a small bucket can be counted exactly"),
            attempts: None,
        }
    }

    fn try_begin(&mut self, now: Duration) -> bool {
        if self.failures > 0 && now < self.due {
            return false;
        }
        let take = Command::Take { n: 1 };
        let decision = self.limit.apply(self.attempts, take, whole_us(now));
        self.attempts = decision.state();
        if decision.is_allowed() && self.failures > 0 {
            // One at a time, until one has succeeded.
            self.due = now + DELAYS.longest();
        }
        decision.is_allowed()
    }

    /// Delays count from the beginning of an attempt: one that timed out has waited already.
    fn failed(&mut self, began: Duration) {
        self.due = began + DELAYS.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    fn wait(&self, now: Duration) -> Duration {
        let take = Command::Take { n: 1 };
        let decision = self.limit.apply(self.attempts, take, whole_us(now));
        let refill = Duration::from_micros(decision.retry_after_us().unwrap_or(0));
        if self.failures == 0 {
            return refill;
        }
        refill.max(self.due.saturating_sub(now))
    }
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Asks every millisecond for `seconds`, and returns when attempts began. Each ends a
    /// millisecond later, well if `is_good`.
    fn begun(pace: &mut Pace, seconds: u32, is_good: impl Fn(Duration) -> bool) -> Vec<Duration> {
        let mut begun = Vec::new();
        for ms in 0..seconds * 1_000 {
            let now = MS * ms;
            while pace.try_begin(now) {
                begun.push(now);
            }
            for _ in begun.iter().filter(|at| **at + MS == now) {
                if is_good(now) {
                    pace.failures = 0;
                } else {
                    pace.failed(now.saturating_sub(MS));
                }
            }
        }
        begun
    }

    fn most_in_a_second(begun: &[Duration]) -> usize {
        let in_second = |from: &Duration| {
            let until = *from + Duration::from_secs(1);
            begun
                .iter()
                .filter(|at| (*from..until).contains(at))
                .count()
        };
        begun.iter().map(in_second).max().unwrap_or(0)
    }

    #[test]
    fn a_server_that_refuses_is_tried_at_most_ten_times_a_second_and_at_least_twice() {
        for connections in [1, 2] {
            let mut pace = Pace::new(connections);
            let begun = begun(&mut pace, 10, |_| false);
            assert_eq!(begun.iter().filter(|at| at.is_zero()).count(), connections);
            assert!(most_in_a_second(&begun) <= 10, "{begun:?}");
            let widest = begun
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .max();
            assert!(widest < Some(MS * 500), "{begun:?}");
        }
    }

    #[test]
    fn a_server_that_drops_what_it_accepts_is_not_stormed_either() {
        let mut pace = Pace::new(2);
        let begun = begun(&mut pace, 10, |_| true);
        assert!(most_in_a_second(&begun) <= 10, "{begun:?}");
    }

    #[test]
    fn all_connections_are_opened_at_once_where_that_succeeds() {
        let mut pace = Pace::new(64);
        assert_eq!((0..100).filter(|_| pace.try_begin(MS)).count(), 64);
    }

    #[test]
    fn the_wait_is_until_the_next_attempt_may_begin() {
        let mut pace = Pace::new(1);
        let mut now = MS;
        for _ in 0..20 {
            now += pace.wait(now);
            assert!(pace.try_begin(now));
            pace.failed(now);
            let wait = pace.wait(now);
            assert!(!pace.try_begin(now + wait.saturating_sub(MS)));
        }
    }
}
