//! How a throttler is made.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::SettingsError;
use crate::health::Degradation;
use crate::inner::Shared;
use crate::rate::Rate;
use crate::scheduler::Source;
use crate::settings::{
    Counts, Oversize, PARTITIONS_MAX_DEFAULT, PAUSE_MAX_DEFAULT, Settings, WAITERS_MAX_DEFAULT,
};
use crate::signal::Outcome;
use crate::throttler::Throttler;
use balde::Clock;
#[cfg(feature = "redis")]
use balde::OnFailure;
#[cfg(feature = "redis")]
use balde::RedisStore;
use balde::Share;

/// Collects what a [`Throttler`] needs. Only the two rates have no default.
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
#[must_use = "a builder does nothing until it is built"]
pub struct ThrottlerBuilder {
    name: String,
    global: Option<Rate>,
    partition: Option<Rate>,
    own_rates: HashMap<Box<str>, Rate>,
    share: Share,
    degradation: Degradation,
    counts: Counts,
    oversize: Oversize,
    partitions_max: usize,
    waiters_max: usize,
    pause_max: Duration,
    clock: Option<Clock>,
    #[cfg(feature = "redis")]
    store: Option<(RedisStore, OnFailure)>,
}

impl ThrottlerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            name: "throttle".to_owned(),
            global: None,
            partition: None,
            own_rates: HashMap::new(),
            share: Share::percent(10),
            degradation: Degradation::new(),
            counts: Arc::new(Outcome::is_failure),
            oversize: Oversize::default(),
            partitions_max: PARTITIONS_MAX_DEFAULT,
            waiters_max: WAITERS_MAX_DEFAULT,
            pause_max: PAUSE_MAX_DEFAULT,
            clock: None,
            #[cfg(feature = "redis")]
            store: None,
        }
    }

    /// What the throttler is called in logs, metrics and the shared store.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The rate over all partitions. A bare number is tokens in a second.
    pub fn rate(mut self, rate: impl Into<Rate>) -> Self {
        self.global = Some(rate.into());
        self
    }

    /// The rate of each partition.
    pub fn partition_rate(mut self, rate: impl Into<Rate>) -> Self {
        self.partition = Some(rate.into());
        self
    }

    /// One partition with a rate of its own.
    pub fn partition(mut self, name: impl Into<Box<str>>, rate: impl Into<Rate>) -> Self {
        self.own_rates.insert(name.into(), rate.into());
        self
    }

    /// The burst, as a share of what a rate brings in a second; a tenth unless told otherwise. It is
    /// rounded down, at least one, and changes with the rate at every step.
    pub fn burst(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// What errors and successes do to a partition's rate.
    pub fn degradation(mut self, degradation: Degradation) -> Self {
        self.degradation = degradation;
        self
    }

    /// What counts as an error; [`Outcome::is_failure`] unless told otherwise.
    pub fn counts_as_error(
        mut self,
        counts: impl Fn(Outcome) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.counts = Arc::new(counts);
        self
    }

    /// What to do with requests for more than the burst.
    pub fn oversize(mut self, oversize: Oversize) -> Self {
        self.oversize = oversize;
        self
    }

    /// The most partitions to keep, 1,024 unless told otherwise. A new one takes the place of one
    /// that is idle and well; where there is none such, it is refused.
    pub fn partitions_max(mut self, partitions_max: usize) -> Self {
        self.partitions_max = partitions_max;
        self
    }

    /// The most that may wait, 131,072 unless told otherwise.
    pub fn waiters_max(mut self, waiters_max: usize) -> Self {
        self.waiters_max = waiters_max;
        self
    }

    /// The longest that the other side can make a partition pause (`Retry-After`, or nothing left
    /// until a reset): ten minutes unless told otherwise.
    pub fn pause_max(mut self, pause_max: Duration) -> Self {
        self.pause_max = pause_max;
        self
    }

    /// The clock; [`Clock::precise`] unless told otherwise. Tests that let tokio's time stand still
    /// use [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Keeps the buckets in Redis, so that all processes with a throttler of this name share the
    /// global rate and those of the partitions, and learn from each other which are degraded.
    ///
    /// What happens while Redis is away has to be chosen: with [`OnFailure::Deny`] everybody waits
    /// until it is back, with [`OnFailure::Allow`] nobody is held up, and with [`OnFailure::Local`]
    /// buckets of this process decide, with a share of the rates.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: &RedisStore, on_failure: OnFailure) -> Self {
        self.store = Some((store.clone(), on_failure));
        self
    }

    /// The throttler, or what is wrong.
    pub fn build(self) -> Result<Throttler, SettingsError> {
        let no_rate = |which| SettingsError::NoRate { which };
        let settings = Settings {
            name: self.name,
            global: self.global.ok_or(no_rate("rate"))?,
            partition: self.partition.ok_or(no_rate("partition_rate"))?,
            own_rates: self.own_rates,
            share: self.share,
            degradation: self.degradation,
            counts: self.counts,
            oversize: self.oversize,
            partitions_max: self.partitions_max,
            waiters_max: self.waiters_max,
            pause_max: self.pause_max,
        };
        settings.check()?;
        let clock = self.clock.unwrap_or_default();
        #[cfg(feature = "redis")]
        if let Some((store, on_failure)) = self.store {
            return crate::remote::tokens::build(settings, clock, store, on_failure);
        }
        let shared = Shared::new(settings, clock, Source::Here);
        Ok(Throttler::of(Arc::new(shared)))
    }
}

impl fmt::Debug for ThrottlerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottlerBuilder")
            .field("name", &self.name)
            .field("rate", &self.global)
            .field("partition_rate", &self.partition)
            .finish_non_exhaustive()
    }
}
