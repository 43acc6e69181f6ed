//! The settings of a throttler, and their validation.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use balde::Share;

use crate::error::SettingsError;
use crate::health::{Degradation, INTERVAL_MAX};
use crate::name::is_partition_name;
use crate::outcome::Outcome;
use crate::rate::{Pace, Rate};

pub(crate) const PARTITIONS_MAX_DEFAULT: usize = 1_024;
const PARTITIONS_MAX_MAX: usize = 1_000_000;

pub(crate) const WAITERS_MAX_DEFAULT: usize = 131_072;
const WAITERS_MAX_MAX: usize = 16_000_000;

pub(crate) const PAUSE_MAX_DEFAULT: Duration = Duration::from_secs(600);

/// What to do with a request for more tokens than the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversize {
    /// It waits: when it is first in line, the buckets save up as many tokens, and it takes them at
    /// once. In any interval at most the refill and one such request are granted, instead of the
    /// refill and one burst. Tokens from Redis are collected in slices, which leave together.
    #[default]
    Slices,
    /// Refuse it with [`Refusal::TooLarge`](crate::Refusal::TooLarge). A degraded rate has a smaller
    /// burst, so a request that used to fit may then be refused.
    Refuse,
}

pub(crate) type CountsAsError = Arc<dyn Fn(Outcome) -> bool + Send + Sync>;

pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) global_rate: Rate,
    pub(crate) partition_rate: Rate,
    /// Rates of single partitions, by name.
    pub(crate) partition_rates: HashMap<Box<str>, Rate>,
    pub(crate) burst_share: Share,
    pub(crate) degradation: Degradation,
    pub(crate) counts_as_error: CountsAsError,
    pub(crate) oversize: Oversize,
    pub(crate) partitions_max: usize,
    pub(crate) waiters_max: usize,
    pub(crate) pause_max: Duration,
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let named = self.partition_rates.values();
        let named = named.map(|rate| ("partition", rate));
        let rates = [
            ("rate", &self.global_rate),
            ("partition_rate", &self.partition_rate),
        ];
        for (which, rate) in rates.into_iter().chain(named) {
            if !rate.is_valid() {
                let tokens = rate.tokens();
                return Err(SettingsError::Rate { which, tokens });
            }
        }
        if !self
            .partition_rates
            .keys()
            .all(|name| is_partition_name(name))
        {
            return Err(SettingsError::PartitionName);
        }
        if !self.burst_share.is_valid() {
            return Err(SettingsError::Share {
                which: "burst",
                advice: "it must be 1 to 100 percent",
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
        Pace::new(rate, self.burst_share)
    }

    pub(crate) fn rate_of(&self, partition: &str) -> Rate {
        let named = self.partition_rates.get(partition);
        named.copied().unwrap_or(self.partition_rate)
    }
}
