//! The builder of limiters.

use std::time::Duration;

use balde_core::Limit;

#[cfg(feature = "redis")]
use super::RedisLimiter;
use super::tiers::TierSettings;
#[cfg(feature = "tokio")]
use super::wait::{WAITERS_MAX_DEFAULT, Waiters};
use super::{RateLimiter, Store};
use crate::clock::Clock;
use crate::env::{self, Storage};
use crate::error::{BuildError, InvalidLimit, KEYS_MAX_MAX};
use crate::failure::OnFailure;
use crate::holds::Holds;
use crate::idempotency::{ONCE_TTL_DEFAULT, OperationLog};
#[cfg(feature = "redis")]
use crate::lease::Leases;
use crate::store::memory::{Assignment, Table};
#[cfg(feature = "redis")]
use crate::store::redis::{BucketOptions, RedisBuckets, RedisStore, ScriptTimer};
#[cfg(any(feature = "redis", not(feature = "prometheus")))]
use crate::telemetry::Meter;
#[cfg(all(feature = "prometheus", feature = "redis"))]
use crate::telemetry::StoreReading;
use crate::telemetry::{Denials, KeyHasher, Observer, StorageMode};
#[cfg(feature = "prometheus")]
use crate::telemetry::{LimiterReading, Metrics};

/// The default of [`RateLimiterBuilder::keys_max`].
pub(crate) const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// The longest that operations can be remembered.
pub(crate) const ONCE_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The shortest.
pub(crate) const ONCE_TTL_MIN: Duration = Duration::from_millis(1);

/// Configures a [`RateLimiter`]. Only the limit has no default.
///
/// ```
/// use balde::{Clock, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = RateLimiter::builder()
///     .name("per-user")
///     .limit("1200/min burst 36000 stepwise")
///     .keys_max(100_000)
///     .clock(Clock::cached(Duration::from_millis(1)))
///     .build()?;
/// assert!(limiter.blocking().check("alice").is_allowed());
/// # Ok::<(), balde::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimiterBuilder {
    name: String,
    limit: Result<Limit, BuildError>,
    tiers: TierSettings,
    tiers_by_request: bool,
    keys_max: usize,
    clock: Option<Clock>,
    once_ttl: Duration,
    holds: Option<Holds>,
    hash_tag: Option<Vec<u8>>,
    #[cfg(feature = "tokio")]
    waiters_max: usize,
    storage: Result<Storage, BuildError>,
    #[cfg(feature = "redis")]
    leases: Option<Leases>,
    #[cfg(feature = "prometheus")]
    metrics: Option<Metrics>,
    hasher: Option<KeyHasher>,
    denials: Denials,
}

impl RateLimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: "default".to_owned(),
            limit: Err(BuildError::NoLimit),
            tiers: TierSettings::default(),
            tiers_by_request: false,
            keys_max: KEYS_MAX_DEFAULT,
            clock: None,
            once_ttl: ONCE_TTL_DEFAULT,
            holds: None,
            hash_tag: None,
            #[cfg(feature = "tokio")]
            waiters_max: WAITERS_MAX_DEFAULT,
            storage: Ok(Storage::Memory),
            #[cfg(feature = "redis")]
            leases: None,
            #[cfg(feature = "prometheus")]
            metrics: None,
            hasher: None,
            denials: Denials::default(),
        }
    }

    /// Sets the limit: a [`Limit`], or its text, such as `"10/s burst 20"`.
    pub fn limit<L>(mut self, limit: L) -> Self
    where
        L: TryInto<Limit>,
        L::Error: Into<InvalidLimit>,
    {
        let limit = limit.try_into().map_err(Into::into);
        self.limit = limit.map_err(BuildError::Limit);
        self
    }

    /// Names a tier: a limit for the keys that are assigned to it by
    /// [`set_tier`](RateLimiter::set_tier) or [`tier_of`](RateLimiterBuilder::tier_of). All other
    /// keys are under the [`limit`](RateLimiterBuilder::limit) of the limiter. A limiter can have
    /// 4,095 tiers.
    ///
    /// A key has one bucket, whatever its tier: one that moves to another tier keeps its deficit.
    pub fn tier<L>(mut self, name: impl Into<String>, limit: L) -> Self
    where
        L: TryInto<Limit>,
        L::Error: Into<InvalidLimit>,
    {
        let limit = limit.try_into().map_err(Into::into);
        let limit = limit.map_err(BuildError::Limit);
        self.tiers.add(name.into(), limit);
        self
    }

    /// Sets a function that looks up the tier of a key: it returns the name of a tier, or `None` for
    /// a key without one. It is called with every check, so it must be fast and must not block; a
    /// name that is not a tier's counts as none and is logged.
    ///
    /// ```
    /// use balde::RateLimiter;
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, RwLock};
    ///
    /// // Kept up to date by the service.
    /// let plans: Arc<RwLock<HashMap<Vec<u8>, &'static str>>> = Arc::default();
    ///
    /// let lookup = Arc::clone(&plans);
    /// let limiter = RateLimiter::builder()
    ///     .limit("10/min")
    ///     .tier("gold", "100/min")
    ///     .tier_of(move |key| lookup.read().unwrap().get(key).copied())
    ///     .build()?;
    /// assert_eq!(limiter.blocking().check("alice").remaining(), 9);
    ///
    /// plans.write().unwrap().insert(b"alice".to_vec(), "gold");
    /// assert_eq!(limiter.blocking().check("alice").remaining(), 98);
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    ///
    /// A bucket is converted when the next command finds its key in another tier.
    pub fn tier_of<N: AsRef<str>>(
        mut self,
        tier_of: impl Fn(&[u8]) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.tiers.set_lookup(tier_of);
        self
    }

    /// Lets each request say which tier its key is in, by
    /// [`TokenRequest::in_tier`](crate::TokenRequest::in_tier). A bucket is converted when the next
    /// command finds its key in another tier. Requests that do not say it leave the bucket in the tier
    /// in which it was last used.
    pub fn tiers_by_request(mut self) -> Self {
        self.tiers_by_request = true;
        self
    }

    /// Sets the name, for logs, metrics, headers and key names in Redis. By default `default`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the most keys to keep in memory. By default 1,000,000, which take about 40 MB.
    ///
    /// When a new key exceeds it, the memory store evicts the bucket that is nearest to full among a
    /// sample of a hundred (among all, in a store of a few hundred keys).
    /// [`RateLimiter::memory_stats`] counts evictions.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max;
        self
    }

    /// Sets the clock. By default [`Clock::precise`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets how long an operation with an [`OpId`](crate::OpId) is remembered, and so how late it can
    /// be retried: by default ten minutes, at most seven days. A limiter in memory remembers the
    /// last 65,536 operations at most.
    pub fn once_ttl(mut self, ttl: Duration) -> Self {
        self.once_ttl = ttl;
        self
    }

    /// Keeps the tokens of a [`Hold`](crate::Hold) in the bucket until it is settled: nobody else can
    /// take them, and the bucket refills as if they had not been taken. Without this setting they are
    /// taken at once, and a settlement charges or gives back the difference.
    ///
    /// Use it to mirror the bucket of another system, which counts a request at a time that is not
    /// known, between its admission and its answer: the mirror never has more tokens than the other
    /// bucket.
    ///
    /// ```
    /// use balde::{Hold, Holds, RateLimiter};
    ///
    /// let builder = RateLimiter::builder().limit("10/min").holds(Holds::new());
    /// let limiter = builder.build()?;
    /// let hold = Hold::take_blocking(&[limiter.request_n("alice", 8)]).expect("the bucket is full");
    /// assert!(!limiter.blocking().check_n("alice", 3).is_allowed());
    /// hold.settle_blocking(1);
    /// assert_eq!(limiter.blocking().check_n("alice", 3).remaining(), 6);
    /// # Ok::<(), balde::BuildError>(())
    /// ```
    ///
    /// In Redis a bucket contains what each process holds of it, so every process sees the sum. What a
    /// process held that was killed is charged after [`Holds::ttl`], or given back. All processes that
    /// share a bucket should have the same setting.
    pub fn holds(mut self, holds: Holds) -> Self {
        self.holds = Some(holds);
        self
    }

    /// Sets how many requests may wait in [`acquire`](RateLimiter::acquire) at a time, for all keys
    /// together. By default 100,000. Further ones are refused.
    #[cfg(feature = "tokio")]
    pub fn waiters_max(mut self, waiters_max: usize) -> Self {
        self.waiters_max = waiters_max;
        self
    }

    /// Keeps the buckets in Redis, shared with other processes. Limiters with the same name in the
    /// same store share their buckets, so give each limit a name.
    ///
    /// `on_failure` decides while Redis is unavailable. It has no default, because no answer suits
    /// every service.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: &RedisStore, on_failure: OnFailure) -> Self {
        self.storage = Ok(Storage::Redis(store.clone(), on_failure));
        self
    }

    /// Takes tokens of busy keys from Redis in blocks, and caches refusals. A hot key then costs
    /// Redis one call in many checks, and a flood of refused checks hardly any.
    ///
    /// The limit holds, because Redis debits a block when it is taken. But each process may hold one
    /// block per key, so other processes see a lower level and may be refused tokens that one of
    /// them holds, and a short interval may see one block per process more than capacity and refill
    /// ([`LeaseStats`](crate::LeaseStats) has the numbers). A process that has cached a refusal
    /// notices a credit by another process within a second.
    ///
    /// Leases serve [`check`](RateLimiter::check) and [`check_n`](RateLimiter::check_n), and requests
    /// of [`check_all`](crate::check_all) and [`Hold::take`](crate::Hold::take) that neither
    /// [need](crate::TokenRequest::needing) more than they take nor [hold](RateLimiterBuilder::holds)
    /// it. In memory this setting has no effect.
    #[cfg(feature = "redis")]
    pub fn leases(mut self, leases: Leases) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Counts the limiter's decisions in `metrics`, under its name. Limiters with the same name are
    /// counted together.
    #[cfg(feature = "prometheus")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Sets the salt with which keys are hashed in logs and spans.
    ///
    /// By default it is the environment variable `RL_LOG_SALT`, or else random: then a key's hash
    /// differs between processes. An empty salt counts as none.
    pub fn log_salt(mut self, salt: impl AsRef<[u8]>) -> Self {
        let salt = salt.as_ref();
        self.hasher = (!salt.is_empty()).then(|| KeyHasher::salted(salt));
        self
    }

    /// Sets which denials are logged. By default they are summarised, once a second.
    ///
    /// With [`Denials::Every`] each denial is queued and another thread logs it, so that no decision
    /// waits for the log. Up to 16,384 denials wait, about 4 MiB; more are dropped, and counted in the metric `rate_limiter_log_dropped_total` and in a line
    /// `denials_dropped`. Call [`flush_denials`](crate::telemetry::flush_denials) before the program
    /// ends.
    pub fn denials(mut self, denials: Denials) -> Self {
        self.denials = denials;
        self
    }

    /// Chooses the store by environment variables: `RL_STORAGE_MODE` is `memory` or `redis`; for
    /// `redis`, `REDIS_ADDR` is `host:port` or a URL, and `REDIS_PASSWORD` the password if there is
    /// one.
    ///
    /// Each limiter that is built this way opens its own connections. If there are many, build one
    /// `RedisStore` and share it.
    pub fn storage_from_env(self, on_failure: OnFailure) -> Self {
        self.storage_from(|name| std::env::var(name).ok(), on_failure)
    }

    /// [`storage_from_env`](RateLimiterBuilder::storage_from_env) with variables from `lookup`. Also
    /// looks up `RL_LOG_SALT`, unless [`log_salt`](RateLimiterBuilder::log_salt) was called before.
    pub fn storage_from(
        mut self,
        lookup: impl Fn(&str) -> Option<String>,
        on_failure: OnFailure,
    ) -> Self {
        self.hasher = self.hasher.or_else(|| KeyHasher::from_lookup(&lookup));
        self.storage = env::storage(lookup, on_failure);
        self
    }

    /// Sets the hash tag of every bucket's name in Redis. By default the bucket's key.
    ///
    /// In a Redis Cluster all buckets with the same tag are in one slot, so that a decision over
    /// several of them is one call. One node then has to carry them all.
    pub fn hash_tag(mut self, tag: impl AsRef<[u8]>) -> Self {
        let tag = tag.as_ref();
        // Redis ignores an empty tag.
        self.hash_tag = (!tag.is_empty()).then(|| tag.to_vec());
        self
    }

    /// Builds the limiter.
    pub fn build(self) -> Result<RateLimiter, BuildError> {
        let limit = InvalidLimit::check_window(self.limit?)?;
        let keys_max = self.keys_max;
        if !(1..=KEYS_MAX_MAX).contains(&keys_max) {
            return Err(BuildError::KeysMax { keys_max });
        }
        #[cfg(feature = "tokio")]
        if self.waiters_max == 0 {
            return Err(BuildError::WaitersMax);
        }
        let ttl = self.once_ttl;
        if !(ONCE_TTL_MIN..=ONCE_TTL_MAX).contains(&ttl) {
            return Err(BuildError::OnceTtl { ttl });
        }
        if let Some(holds) = &self.holds {
            holds.check()?;
        }
        let clock = self.clock.unwrap_or_default();
        let (tiers, limits) = self.tiers.build(limit, &clock)?;
        #[cfg(feature = "prometheus")]
        let meter = self
            .metrics
            .as_ref()
            .map(|metrics| metrics.meter(&self.name));
        #[cfg(not(feature = "prometheus"))]
        let meter: Option<Meter> = None;
        let hasher = self.hasher.unwrap_or_else(KeyHasher::of_process);
        let (store, observer) = match self.storage? {
            Storage::Memory => {
                let assignment = if self.tiers_by_request || tiers.lookup().is_some() {
                    Assignment::Given
                } else {
                    Assignment::Stored
                };
                let mut table = Table::with_tiers(&limits, assignment, keys_max, clock.now_us());
                if self.holds.is_some() {
                    table = table.with_holds();
                }
                let observer = Observer::new(self.name, StorageMode::Memory, hasher, meter);
                (Store::Memory(table, OperationLog::new(ttl)), observer)
            }
            #[cfg(feature = "redis")]
            Storage::Redis(store, on_failure) => {
                if let OnFailure::Local { share } = on_failure
                    && !share.is_valid()
                {
                    return Err(BuildError::Share);
                }
                if self.leases.is_some_and(|leases| !leases.is_valid()) {
                    return Err(BuildError::Share);
                }
                let options = BucketOptions {
                    hash_tag: self.hash_tag.as_deref(),
                    on_failure,
                    keys_max,
                    once_ttl: ttl,
                    holds: self.holds,
                    script_timer: meter.clone().map(script_timer),
                    tier_lookup: tiers.lookup().cloned(),
                };
                let buckets =
                    RedisBuckets::new(&store, &self.name, &limits, clock.clone(), options)
                        .map_err(InvalidLimit::from)?;
                let redis = RedisLimiter::new(buckets, self.leases);
                let observer = Observer::new(self.name, StorageMode::Redis, hasher, meter);
                (Store::Redis(redis), observer.with_on_failure(on_failure))
            }
        };
        observer.set_denials(self.denials);
        let limiter = RateLimiter::from_parts(
            clock,
            store,
            tiers,
            observer,
            #[cfg(feature = "tokio")]
            Waiters::new(self.waiters_max),
        );
        #[cfg(feature = "prometheus")]
        if let Some(metrics) = &self.metrics {
            register(&limiter, metrics);
        }
        Ok(limiter)
    }
}

#[cfg(feature = "redis")]
fn script_timer(meter: Meter) -> ScriptTimer {
    Box::new(move |took| meter.observe_script(took))
}

/// Registers a limiter and its store with the metrics, without keeping them alive.
#[cfg(feature = "prometheus")]
fn register(limiter: &RateLimiter, metrics: &Metrics) {
    let weak = std::sync::Arc::downgrade(&limiter.0);
    metrics.add_limiter(limiter.name(), move || {
        weak.upgrade().map(|inner| reading(&RateLimiter(inner)))
    });
    #[cfg(feature = "redis")]
    if let Some(redis) = limiter.redis() {
        let store = redis.store().downgrade();
        metrics.add_store(store.id(), move || {
            let stats = store.stats()?;
            Some(StoreReading {
                open: u64::from(stats.is_open),
                opened: stats.opened_total,
                calls: stats.calls_total,
                connects: stats.connects_total,
                reloads: stats.reloads_total,
                failures: stats.failure_counts(),
            })
        });
    }
}

#[cfg(feature = "prometheus")]
fn reading(limiter: &RateLimiter) -> LimiterReading {
    let memory = limiter.memory_stats();
    let reading = LimiterReading {
        keys: memory.keys,
        swept: memory.swept_total,
        evicted: memory.evicted_total,
        lock_waits: memory.lock_waits_total,
        log_dropped: limiter.observer().denials_dropped(),
        ..LimiterReading::default()
    };
    #[cfg(feature = "tokio")]
    let reading = LimiterReading {
        waiters: limiter.waiting() as u64,
        waits: limiter.waiters().outcomes(),
        ..reading
    };
    #[cfg(feature = "redis")]
    let reading = {
        let leases = limiter.lease_stats();
        LimiterReading {
            lease_keys: leases.keys,
            lease_tokens: leases.tokens_out,
            lease_tokens_max: leases.block_max.saturating_mul(leases.keys),
            lease_granted: leases.granted_total,
            lease_refused: leases.refused_total,
            lease_requests: leases.requests_total,
            lease_returned: leases.returned_total,
            ..reading
        }
    };
    reading
}

#[cfg(all(test, feature = "prometheus"))]
mod tests {
    use super::*;

    #[test]
    fn metrics_keep_the_counts_of_a_dropped_limiter_but_not_the_limiter() {
        let metrics = Metrics::new();
        let build = || {
            let builder = RateLimiter::builder().name("p").limit("1/h").keys_max(2);
            builder.metrics(&metrics).build().unwrap()
        };
        let limiters = [build(), build()];
        for limiter in &limiters {
            for key in ["a", "b", "c"] {
                limiter.blocking().check(key);
            }
        }
        let assert_shows = |keys: u64, evicted: u64| {
            let text = metrics.encode();
            let keys = format!(r#"rate_limiter_keys{{policy="p"}} {keys}"#);
            assert!(text.contains(&keys), "{text}");
            let evicted = format!(r#"rate_limiter_evicted_keys_total{{policy="p"}} {evicted}"#);
            assert!(text.contains(&evicted), "{text}");
        };
        assert_shows(4, 2);
        let [first, _second] = limiters;
        let weak = std::sync::Arc::downgrade(&first.0);
        drop(first);
        assert!(weak.upgrade().is_none());
        assert_shows(2, 2);
    }
}
