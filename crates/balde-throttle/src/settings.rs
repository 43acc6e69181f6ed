//! What a throttler is told when it is built, checked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::SettingsError;
use crate::health::{Degradation, INTERVAL_MAX};
use crate::rate::{Pace, Rate};
use crate::signal::Outcome;
use balde::Share;

/// The longest name of a partition, in bytes.
pub const PARTITION_BYTES_MAX: usize = 128;

/// Partitions unless told otherwise, and the most there can be.
pub const PARTITIONS_MAX_DEFAULT: usize = 1_024;
const PARTITIONS_MAX_MAX: usize = 1_000_000;

/// Waiters unless told otherwise, and the most there can be.
pub const WAITERS_MAX_DEFAULT: usize = 131_072;
const WAITERS_MAX_MAX: usize = 16_000_000;

/// The longest that the other side can make a partition pause, unless told otherwise.
pub const PAUSE_MAX_DEFAULT: Duration = Duration::from_secs(600);

/// What to do with a request for more tokens than the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversize {
    /// Collect it in slices of at most the burst, and give it when it is complete.
    #[default]
    Slices,
    /// Refuse it with [`Refused::TooLarge`](crate::Refused::TooLarge). As errors degrade a rate, its
    /// burst shrinks, too: a request that used to fit may then be refused.
    Refuse,
}

pub(crate) type Counts = Arc<dyn Fn(Outcome) -> bool + Send + Sync>;

pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) global: Rate,
    pub(crate) partition: Rate,
    pub(crate) own_rates: HashMap<Box<str>, Rate>,
    pub(crate) share: Share,
    pub(crate) degradation: Degradation,
    pub(crate) counts: Counts,
    pub(crate) oversize: Oversize,
    pub(crate) partitions_max: usize,
    pub(crate) waiters_max: usize,
    pub(crate) pause_max: Duration,
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let own = self.own_rates.values().map(|rate| ("partition", rate));
        let rates = [("rate", &self.global), ("partition_rate", &self.partition)];
        for (which, rate) in rates.into_iter().chain(own) {
            if !rate.is_valid() {
                let tokens = rate.tokens();
                return Err(SettingsError::Rate { which, tokens });
            }
        }
        if !self.own_rates.keys().all(|name| is_name(name)) {
            return Err(SettingsError::PartitionName);
        }
        if !self.share.is_valid() {
            return Err(SettingsError::Share {
                which: "burst",
                advice: "1 to 100 percent",
            });
        }
        for (which, number, max) in [
            ("partitions_max", self.partitions_max, PARTITIONS_MAX_MAX),
            ("waiters_max", self.waiters_max, WAITERS_MAX_MAX),
        ] {
            if !(1..=max).contains(&number) {
                return Err(SettingsError::Number { which, number, max });
            }
        }
        if !(Duration::from_millis(1)..=INTERVAL_MAX).contains(&self.pause_max) {
            return Err(SettingsError::Interval {
                which: "pause_max",
                interval: self.pause_max,
            });
        }
        self.degradation.check()
    }

    pub(crate) fn pace(&self, rate: Rate) -> Pace {
        Pace::new(rate, self.share)
    }

    pub(crate) fn rate_of(&self, name: &str) -> Rate {
        self.own_rates.get(name).copied().unwrap_or(self.partition)
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    (1..=PARTITION_BYTES_MAX).contains(&name.len())
}
