//! One partition: its bucket, its line, its health, and what is known of it.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::health::{Circuit, Health};
use crate::rate::{Pace, Rate};
use crate::scheduler::Event;
use crate::scheduler::waiters::Line;
use crate::settings::Settings;
use crate::signal::Brake;

/// Upper ends of the buckets in which waits are counted, in microseconds. Longer ones are in one
/// more.
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

/// Where a partition stands while somebody waits in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Nobody waits, or something other than time has to happen first.
    Nowhere,
    /// Its bucket would give; the global one decides, lowest turn first.
    Ready { turn: u64 },
    /// Nothing will change before then.
    Timed { due_us: u64 },
}

pub(crate) struct Part {
    pub(crate) name: Arc<str>,
    pub(crate) rate: Rate,
    pub(crate) pace: Pace,
    pub(crate) bucket: Bucket,
    pub(crate) line: Line,
    pub(crate) spot: Spot,
    /// Tokens it has had from the global bucket, in the sense of who is next.
    pub(crate) turn: u64,
    pub(crate) health: Health,
    pub(crate) brake: Brake,
    /// Tokens of requests that were let through and have not been reported yet.
    pub(crate) under_way: u64,
    pub(crate) permits: usize,
    pub(crate) handles: usize,
    /// Places of its waiters, also of those who do not know yet that they were served.
    pub(crate) places: usize,
    /// Tokens taken from the shared store for its line.
    pub(crate) purse: u64,
    pub(crate) is_fed: bool,
    pub(crate) is_flushed: bool,
    /// Events that others have not been told of yet, and whether somebody is at it.
    pub(crate) untold: Vec<Event>,
    pub(crate) is_telling: bool,
    pub(crate) used_at_us: u64,
    pub(crate) tally: Tally,
}

impl Part {
    pub(crate) fn new(name: Arc<str>, settings: &Settings, turn: u64, now_us: u64) -> Self {
        let rate = settings.rate_of(&name);
        let pace = settings.pace(rate);
        Self {
            name,
            rate,
            pace,
            bucket: Bucket::new(*pace.limit(), now_us),
            line: Line::default(),
            spot: Spot::Nowhere,
            turn,
            health: Health::new(rate.tokens()),
            brake: Brake::default(),
            under_way: 0,
            permits: 0,
            handles: 0,
            places: 0,
            purse: 0,
            is_fed: false,
            is_flushed: false,
            untold: Vec::new(),
            is_telling: false,
            used_at_us: now_us,
            tally: Tally::default(),
        }
    }

    /// Whether it can be forgotten. A partition that comes back starts with an empty bucket, so
    /// forgetting never mints; and what has been learnt of the other side is never forgotten.
    pub(crate) fn is_idle(&self, now_us: u64) -> bool {
        self.handles == 0
            && self.permits == 0
            && self.places == 0
            && !self.is_fed
            && !self.is_telling
            && self.health.is_sound()
            && (self.brake.is_off() || !self.brake.is_paused(now_us))
    }

    pub(crate) fn stats(&self) -> PartitionStats {
        PartitionStats {
            name: self.name.to_string(),
            original: self.rate,
            pace: self.pace,
            circuit: self.health.circuit(),
            waiters: self.line.len(),
            tally: self.tally,
        }
    }
}

/// What a partition has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    pub(crate) failures: u64,
    pub(crate) waits: [u64; WAIT_BOUNDS_US.len() + 1],
    pub(crate) waited_us: u64,
}

impl Tally {
    pub(crate) fn waited(&mut self, us: u64) {
        let slot = WAIT_BOUNDS_US.partition_point(|bound| *bound < us);
        self.waits[slot] += 1;
        self.waited_us = self.waited_us.saturating_add(us);
    }

    /// Both together.
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

    /// The same for some that did not wait at all.
    pub(crate) fn passed_at_once(&mut self, requests: u64) {
        self.waits[0] += requests;
    }
}

/// A partition as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    name: String,
    original: Rate,
    pace: Pace,
    circuit: Circuit,
    waiters: usize,
    pub(crate) tally: Tally,
}

impl PartitionStats {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rate it has while all is well.
    pub const fn original(&self) -> Rate {
        self.original
    }

    /// The rate and burst it has now.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// Whether its rate is below the original, or its circuit not closed.
    pub fn is_degraded(&self) -> bool {
        self.pace.rate() != self.original || self.circuit != Circuit::Closed
    }

    /// Whether its calls are let through.
    pub const fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// How many wait in its line.
    pub const fn waiters(&self) -> usize {
        self.waiters
    }

    /// Tokens given so far.
    pub const fn granted(&self) -> u64 {
        self.tally.granted
    }

    /// Requests refused so far.
    pub const fn refused(&self) -> u64 {
        self.tally.refused
    }

    /// Requests so far that failed, in the sense of what counts as an error.
    pub const fn failures(&self) -> u64 {
        self.tally.failures
    }
}
