//! The counters of one policy, cheap enough to be incremented with every check.
//!
//! Each thread counts in its own stripe, so that two cores do not share a cache line; a reader adds
//! the stripes up. In memory one check in [`SAMPLED_ONE_IN`] of each thread is timed, because reading
//! a clock twice would cost half as much as the check.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde_core::Command;

use super::histogram::Histogram;
use super::{StorageMode, stripe};
use crate::clock::Stopwatch;
use crate::decision::Decision;

/// In memory, one in this many checks of a thread is timed.
pub(crate) const SAMPLED_ONE_IN: u32 = 64;

/// The number of stripes. More threads than this share them, and are counted correctly.
const STRIPES: usize = 16;

/// The counters of a policy.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Allow,
    Deny,
    FallbackAllow,
    FallbackDeny,
    BadKey,
    NoKey,
    Peek,
    Charge,
    Credit,
    SetLevel,
}

/// Counts per policy, and durations of all policies together.
#[derive(Clone)]
pub(crate) struct Meter {
    counts: Arc<Counts>,
    times: Arc<Times>,
}

impl Meter {
    pub(super) fn new(counts: Arc<Counts>, times: Arc<Times>) -> Self {
        Self { counts, times }
    }

    /// Starts timing, if this check is one of those that are timed.
    #[inline]
    pub(crate) fn begin(mode: StorageMode) -> Option<Stopwatch> {
        let is_timed = match mode {
            StorageMode::Memory => is_sampled(),
            #[cfg(feature = "redis")]
            StorageMode::Redis => true,
        };
        is_timed.then(Stopwatch::start)
    }

    #[inline]
    pub(crate) fn count_decision(&self, decision: &Decision) {
        let count = match (decision.is_fallback(), decision.is_allowed()) {
            (false, true) => Count::Allow,
            (false, false) => Count::Deny,
            (true, true) => Count::FallbackAllow,
            (true, false) => Count::FallbackDeny,
        };
        self.counts.add_one(count);
        if decision.bad_key().is_some() {
            self.counts.add_one(Count::BadKey);
        }
    }

    pub(crate) fn count_no_key(&self) {
        self.counts.add_one(Count::NoKey);
    }

    pub(crate) fn count_command(&self, command: Command) {
        // A settlement is counted by its difference to what was held.
        self.counts.add_one(match command.without_holds() {
            Command::Charge { .. } => Count::Charge,
            Command::Credit { .. } => Count::Credit,
            Command::SetLevel { .. } => Count::SetLevel,
            _ => Count::Peek,
        });
    }

    pub(crate) fn observe_latency(&self, mode: StorageMode, took: Duration) {
        match mode {
            StorageMode::Memory => self.times.memory.observe(took),
            #[cfg(feature = "redis")]
            StorageMode::Redis => self.times.redis.observe(took),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn observe_script(&self, took: Duration) {
        self.times.script.observe(took);
    }
}

/// Durations, over all policies.
#[derive(Default)]
pub(super) struct Times {
    pub(super) memory: Histogram,
    pub(super) redis: Histogram,
    pub(super) script: Histogram,
}

#[derive(Default)]
pub(super) struct Counts([Stripe; STRIPES]);

#[repr(align(128))]
#[derive(Default)]
struct Stripe([AtomicU64; 16]);

impl Counts {
    #[inline]
    fn add_one(&self, count: Count) {
        self.0[stripe::of_thread() % STRIPES].0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, count: Count) -> u64 {
        let stripes = self.0.iter();
        stripes
            .map(|stripe| stripe.0[count as usize].load(Ordering::Relaxed))
            .sum()
    }
}

thread_local! {
    static CHECKS: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this check is timed. The first of each thread is, so that there is a sample.
#[inline]
fn is_sampled() -> bool {
    let checks = CHECKS.get();
    CHECKS.set(checks.wrapping_add(1));
    checks.is_multiple_of(SAMPLED_ONE_IN)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_count_apart_and_are_added_up() {
        let counts = Counts::default();
        thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| (0..1_000).for_each(|_| counts.add_one(Count::Deny)));
            }
        });
        assert_eq!(counts.read(Count::Deny), 3_000 * STRIPES as u64);
        assert_eq!(counts.read(Count::Allow), 0);
    }

    #[test]
    fn one_check_in_so_many_is_timed_from_the_first_on() {
        let timed = thread::spawn(|| {
            let timed = (0..10 * SAMPLED_ONE_IN).map(|_| is_sampled());
            timed.collect::<Vec<_>>()
        });
        let timed = timed.join().unwrap();
        assert!(timed[0]);
        assert_eq!(timed.iter().filter(|is_timed| **is_timed).count(), 10);
    }
}
