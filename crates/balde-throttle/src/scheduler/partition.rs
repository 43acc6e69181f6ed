//! The state of one partition: its bucket, its queue, its health and its counters.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::health::{Circuit, Health};
use crate::hints::ServerHints;
use crate::rate::{Pace, Rate};
use crate::scheduler::HealthEvent;
use crate::scheduler::waiters::Queue;
use crate::settings::Settings;

/// The upper bounds of the histogram of waits, in microseconds. A last bucket counts longer waits.
pub(crate) const WAIT_BOUNDS_US: [u64; 12] = [
    0,
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
];

/// Which of the scheduler's sets a partition is in while requests wait in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// In none: no request waits, or it waits for something other than time.
    Unscheduled,
    /// Its own bucket has the tokens. It competes for the global bucket, lowest turn first.
    Ready { turn: u64 },
    /// It is looked at again at `due_us`.
    Timed { due_us: u64 },
}

pub(crate) struct PartitionState {
    pub(crate) name: Arc<str>,
    pub(crate) rate: Rate,
    pub(crate) pace: Pace,
    pub(crate) bucket: Bucket,
    pub(crate) queue: Queue,
    pub(crate) position: QueuePosition,
    /// Tokens that it has had from the global bucket, for a fair order between partitions.
    pub(crate) turn: u64,
    pub(crate) health: Health,
    pub(crate) hints: ServerHints,
    /// Tokens of permits whose outcome has not been reported yet.
    pub(crate) in_flight: u64,
    pub(crate) permits: usize,
    pub(crate) handles: usize,
    /// Slots of its waiters, including those that were served and not polled since.
    pub(crate) waiter_slots: usize,
    /// Tokens that were taken from the shared store for its queue.
    pub(crate) prefetched: u64,
    /// True while a task takes tokens from the shared store for its queue.
    pub(crate) is_fetching: bool,
    /// True while its queue is being refused.
    pub(crate) is_flushing: bool,
    /// Health events that have not been published to other processes.
    pub(crate) unpublished: Vec<HealthEvent>,
    /// True while a task publishes its health events.
    pub(crate) is_publishing: bool,
    pub(crate) used_at_us: u64,
    pub(crate) counters: PartitionCounters,
}

impl PartitionState {
    pub(crate) fn new(name: Arc<str>, settings: &Settings, turn: u64, now_us: u64) -> Self {
        let rate = settings.rate_of(&name);
        let pace = settings.pace(rate);
        Self {
            name,
            rate,
            pace,
            bucket: Bucket::new(*pace.limit(), now_us),
            queue: Queue::default(),
            position: QueuePosition::Unscheduled,
            turn,
            health: Health::new(rate.tokens()),
            hints: ServerHints::default(),
            in_flight: 0,
            permits: 0,
            handles: 0,
            waiter_slots: 0,
            prefetched: 0,
            is_fetching: false,
            is_flushing: false,
            unpublished: Vec::new(),
            is_publishing: false,
            used_at_us: now_us,
            counters: PartitionCounters::default(),
        }
    }

    /// Returns true if the partition can be removed. A new partition starts with an empty bucket, so
    /// removing one never adds tokens. A degraded partition is kept.
    pub(crate) fn is_idle(&self, now_us: u64) -> bool {
        self.handles == 0
            && self.permits == 0
            && self.waiter_slots == 0
            && !self.is_fetching
            && !self.is_publishing
            && self.health.is_healthy()
            && (self.hints.is_empty() || !self.hints.is_paused(now_us))
    }

    pub(crate) fn stats(&self) -> PartitionStats {
        PartitionStats {
            name: self.name.to_string(),
            configured_rate: self.rate,
            pace: self.pace,
            circuit: self.health.circuit(),
            waiters: self.queue.len(),
            counters: self.counters,
        }
    }
}

/// What a partition has counted since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionCounters {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    pub(crate) failures: u64,
    pub(crate) waits: [u64; WAIT_BOUNDS_US.len() + 1],
    pub(crate) waited_us: u64,
}

impl PartitionCounters {
    pub(crate) fn record_wait(&mut self, us: u64) {
        let bucket = WAIT_BOUNDS_US.partition_point(|bound| *bound < us);
        self.waits[bucket] += 1;
        self.waited_us = self.waited_us.saturating_add(us);
    }

    /// Records requests that did not wait.
    pub(crate) fn record_immediate(&mut self, requests: u64) {
        self.waits[0] += requests;
    }

    #[cfg(feature = "prometheus")]
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut waits = self.waits;
        for (sum, more) in waits.iter_mut().zip(other.waits) {
            *sum += more;
        }
        Self {
            granted: self.granted + other.granted,
            refused: self.refused + other.refused,
            failures: self.failures + other.failures,
            waits,
            waited_us: self.waited_us.saturating_add(other.waited_us),
        }
    }
}

/// The rate, circuit, queue length and counters of a partition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    name: String,
    configured_rate: Rate,
    pace: Pace,
    circuit: Circuit,
    waiters: usize,
    pub(crate) counters: PartitionCounters,
}

impl PartitionStats {
    /// The partition's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configured rate, which applies while the partition is healthy.
    pub const fn configured_rate(&self) -> Rate {
        self.configured_rate
    }

    /// The current rate and burst.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns true if the partition's rate is below the configured one, or its circuit is not
    /// closed.
    pub fn is_degraded(&self) -> bool {
        self.pace.rate() != self.configured_rate || self.circuit != Circuit::Closed
    }

    /// The state of the partition's circuit breaker.
    pub const fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// How many requests wait in the partition's queue.
    pub const fn waiters(&self) -> usize {
        self.waiters
    }

    /// Tokens granted since the partition was created.
    pub const fn granted(&self) -> u64 {
        self.counters.granted
    }

    /// Requests refused since the partition was created.
    pub const fn refused(&self) -> u64 {
        self.counters.refused
    }

    /// Reported outcomes that counted as errors since the partition was created.
    pub const fn failures(&self) -> u64 {
        self.counters.failures
    }
}
