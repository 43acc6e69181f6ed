//! The builder of a throttler.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::{Clock, Share};
#[cfg(feature = "redis")]
use balde::{OnFailure, RedisStore};

use super::Throttler;
use crate::error::SettingsError;
use crate::health::Degradation;
use crate::inner::Inner;
use crate::outcome::Outcome;
use crate::rate::Rate;
#[cfg(feature = "redis")]
use crate::remote::Remote;
use crate::scheduler::TokenSource;
use crate::settings::{
    CountsAsError, Oversize, PARTITIONS_MAX_DEFAULT, PAUSE_MAX_DEFAULT, Settings,
    WAITERS_MAX_DEFAULT,
};

/// Builds a [`Throttler`]. Only the two rates have no default.
///
/// ```
/// use balde::Share;
/// use balde_throttle::{Degradation, Oversize, Rate, Throttler};
/// use std::time::Duration;
///
/// let throttler = Throttler::builder()
///     .name("import")
///     .rate(12_000)
///     .partition_rate(2_000)
///     .partition("archive", Rate::per_minute(600))
///     .burst(Share::percent(5))
///     .degradation(Degradation::new().recovery(Duration::from_secs(10)))
///     .oversize(Oversize::Refuse)
///     .build()?;
/// assert_eq!(throttler.pace().to_string(), "12000/s burst 600");
/// # Ok::<(), balde_throttle::SettingsError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ThrottlerBuilder {
    name: String,
    global_rate: Option<Rate>,
    partition_rate: Option<Rate>,
    partition_rates: HashMap<Box<str>, Rate>,
    burst_share: Share,
    degradation: Degradation,
    counts_as_error: CountsAsError,
    oversize: Oversize,
    partitions_max: usize,
    waiters_max: usize,
    pause_max: Duration,
    clock: Option<Clock>,
    #[cfg(feature = "redis")]
    store: Option<(RedisStore, OnFailure)>,
}

impl ThrottlerBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: "throttle".to_owned(),
            global_rate: None,
            partition_rate: None,
            partition_rates: HashMap::new(),
            burst_share: Share::percent(10),
            degradation: Degradation::new(),
            counts_as_error: Arc::new(Outcome::is_failure),
            oversize: Oversize::default(),
            partitions_max: PARTITIONS_MAX_DEFAULT,
            waiters_max: WAITERS_MAX_DEFAULT,
            pause_max: PAUSE_MAX_DEFAULT,
            clock: None,
            #[cfg(feature = "redis")]
            store: None,
        }
    }

    /// Sets the throttler's name in logs, metrics and the shared store. `throttle` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the rate over all partitions together. A bare number is tokens per second.
    pub fn rate(mut self, rate: impl Into<Rate>) -> Self {
        self.global_rate = Some(rate.into());
        self
    }

    /// Sets the rate of each partition.
    pub fn partition_rate(mut self, rate: impl Into<Rate>) -> Self {
        self.partition_rate = Some(rate.into());
        self
    }

    /// Sets another rate for the partition with this name.
    pub fn partition(mut self, name: impl Into<Box<str>>, rate: impl Into<Rate>) -> Self {
        self.partition_rates.insert(name.into(), rate.into());
        self
    }

    /// Sets the burst of every rate, as a share of the tokens that it grants in one second: 10 % by
    /// default. The burst is rounded down to whole tokens and is at least one. It follows the rate
    /// when that changes.
    pub fn burst(mut self, share: Share) -> Self {
        self.burst_share = share;
        self
    }

    /// Sets how errors and successes change a partition's rate.
    pub fn degradation(mut self, degradation: Degradation) -> Self {
        self.degradation = degradation;
        self
    }

    /// Sets which outcomes count as errors. [`Outcome::is_failure`] by default.
    pub fn counts_as_error(
        mut self,
        counts_as_error: impl Fn(Outcome) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.counts_as_error = Arc::new(counts_as_error);
        self
    }

    /// Sets what to do with requests for more tokens than the burst. [`Oversize::Slices`] by
    /// default.
    pub fn oversize(mut self, oversize: Oversize) -> Self {
        self.oversize = oversize;
        self
    }

    /// Sets the most partitions, 1,024 by default. A new one replaces one that is idle and healthy;
    /// if there is none, it is refused with
    /// [`Refusal::TooManyPartitions`](crate::Refusal::TooManyPartitions).
    pub fn partitions_max(mut self, partitions_max: usize) -> Self {
        self.partitions_max = partitions_max;
        self
    }

    /// Sets the most requests that may wait, 131,072 by default. More are refused with
    /// [`Refusal::TooManyWaiters`](crate::Refusal::TooManyWaiters).
    pub fn waiters_max(mut self, waiters_max: usize) -> Self {
        self.waiters_max = waiters_max;
        self
    }

    /// Sets the longest pause that a server can impose on a partition, by `Retry-After` or by an
    /// exhausted quota. Ten minutes by default.
    pub fn pause_max(mut self, pause_max: Duration) -> Self {
        self.pause_max = pause_max;
        self
    }

    /// Sets the clock, [`Clock::precise`] by default. Tests with tokio's paused time use
    /// [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Keeps the buckets in Redis: all processes that have a throttler of this name share the global
    /// rate, the rates of partitions and their health.
    ///
    /// `on_failure` applies while Redis is unavailable. With [`OnFailure::Deny`] all requests wait until
    /// Redis is back; with [`OnFailure::Allow`] all pass; with [`OnFailure::Local`] this process uses
    /// its own buckets, with a share of the rates.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: &RedisStore, on_failure: OnFailure) -> Self {
        self.store = Some((store.clone(), on_failure));
        self
    }

    /// Builds the throttler, or returns the first setting that is wrong.
    pub fn build(self) -> Result<Throttler, SettingsError> {
        let no_rate = |which| SettingsError::NoRate { which };
        let settings = Settings {
            name: self.name,
            global_rate: self.global_rate.ok_or(no_rate("rate"))?,
            partition_rate: self.partition_rate.ok_or(no_rate("partition_rate"))?,
            partition_rates: self.partition_rates,
            burst_share: self.burst_share,
            degradation: self.degradation,
            counts_as_error: self.counts_as_error,
            oversize: self.oversize,
            partitions_max: self.partitions_max,
            waiters_max: self.waiters_max,
            pause_max: self.pause_max,
        };
        settings.check()?;
        let clock = self.clock.unwrap_or_default();
        #[cfg(feature = "redis")]
        if let Some((store, on_failure)) = self.store {
            let remote =
                Remote::new(&settings, &clock, store, on_failure).map_err(SettingsError::Store)?;
            return Ok(Throttler::from_inner(Inner::with_remote(
                settings, clock, remote,
            )));
        }
        let inner = Inner::new(settings, clock, TokenSource::Local);
        Ok(Throttler::from_inner(Arc::new(inner)))
    }
}

impl fmt::Debug for ThrottlerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottlerBuilder")
            .field("name", &self.name)
            .field("rate", &self.global_rate)
            .field("partition_rate", &self.partition_rate)
            .finish_non_exhaustive()
    }
}
