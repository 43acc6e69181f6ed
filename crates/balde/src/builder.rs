//! How a limiter is made.

use std::time::Duration;

use balde_core::Limit;

use crate::clock::Clock;
use crate::env::{self, Storage};
use crate::error::BuildError;
use crate::failure::OnFailure;
#[cfg(feature = "redis")]
use crate::lease::Leases;
use crate::limiter::{Place, RateLimiter};
use crate::once::{ONCE_TTL_DEFAULT, Once};
use crate::store::memory::{KEYS_MAX_MAX, Table};
#[cfg(feature = "redis")]
use crate::store::redis::{Policy, RedisStore, Shared};
#[cfg(feature = "prometheus")]
use crate::telemetry::Metrics;
use crate::telemetry::{KeyHasher, Mode, Watch};

/// Keys that a memory store keeps unless told otherwise: about 40 MB when they are all there.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// The longest that outcomes of operations can be remembered.
const ONCE_TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Collects what a [`RateLimiter`] needs. Only the limit has no default.
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
    keys_max: usize,
    clock: Option<Clock>,
    once_ttl: Duration,
    hash_tag: Option<Vec<u8>>,
    storage: Result<Storage, BuildError>,
    #[cfg(feature = "redis")]
    leases: Option<Leases>,
    #[cfg(feature = "prometheus")]
    metrics: Option<Metrics>,
    hasher: Option<KeyHasher>,
}

impl RateLimiterBuilder {
    pub(crate) fn new() -> Self {
        Self {
            name: "default".to_owned(),
            limit: Err(BuildError::NoLimit),
            keys_max: KEYS_MAX_DEFAULT,
            clock: None,
            once_ttl: ONCE_TTL_DEFAULT,
            hash_tag: None,
            storage: Ok(Storage::Memory),
            #[cfg(feature = "redis")]
            leases: None,
            #[cfg(feature = "prometheus")]
            metrics: None,
            hasher: None,
        }
    }

    /// The limit: a [`Limit`], or its text.
    pub fn limit<L>(mut self, limit: L) -> Self
    where
        L: TryInto<Limit>,
        L::Error: Into<BuildError>,
    {
        self.limit = limit.try_into().map_err(Into::into);
        self
    }

    /// What the limiter is called where several meet, and in logs and metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The most keys to keep. When a new key would be one too many, the bucket that is nearest to
    /// full goes first, as far as a look at a hundred others tells (all others, in a store of a few
    /// hundred keys); [`RateLimiter::memory_stats`] counts it.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max;
        self
    }

    /// The clock; [`Clock::precise`] unless told otherwise.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How long the outcome of an operation with an [`OpId`](crate::OpId) is remembered, and so
    /// how late it may be asked for again: ten minutes unless told otherwise, at most seven days.
    /// A limiter in memory remembers the last 65,536 at most.
    pub fn once_ttl(mut self, ttl: Duration) -> Self {
        self.once_ttl = ttl;
        self
    }

    /// Keeps the buckets in Redis, where other processes find them, too. Limiters of one name in
    /// one store share their buckets, so there must be one limit to a name.
    ///
    /// What happens while Redis is away has to be chosen: there is no answer that suits all.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: &RedisStore, on_failure: OnFailure) -> Self {
        self.storage = Ok(Storage::Redis(store.clone(), on_failure));
        self
    }

    /// Takes tokens of busy keys from Redis in blocks, and remembers refusals: a hot key then costs
    /// Redis one call in many checks, and a flood of refused ones hardly any.
    ///
    /// The limit is kept, because blocks are debited when they are taken. But up to one block per
    /// process and key is out at any time, so a level that is read elsewhere is lower by that, a
    /// process may be refused what another one holds, and a short stretch of time may see one block
    /// per process more than capacity and refill ([`LeaseStats`](crate::LeaseStats) tells how much).
    /// A credit from elsewhere is noticed within a second of a refusal. Only
    /// [`check`](RateLimiter::check) and [`check_n`](RateLimiter::check_n) use leases; in memory
    /// they mean nothing.
    #[cfg(feature = "redis")]
    pub fn leases(mut self, leases: Leases) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Counts what the limiter does, under its name. Limiters of one name count together.
    #[cfg(feature = "prometheus")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// The salt under which keys are hashed for logs and spans. Unless told otherwise it is the
    /// environment's `RL_LOG_SALT`, and without that a random one of this process: then a key has
    /// one hash as long as the process lives, and another one elsewhere. An empty salt is none.
    pub fn log_salt(mut self, salt: impl AsRef<[u8]>) -> Self {
        let salt = salt.as_ref();
        self.hasher = (!salt.is_empty()).then(|| KeyHasher::salted(salt));
        self
    }

    /// Keeps the buckets where the environment says: `RL_STORAGE_MODE` is `memory` or `redis`, and
    /// with `redis`, `REDIS_ADDR` is `host:port` or a URL and `REDIS_PASSWORD` the password, if
    /// there is one.
    ///
    /// Every limiter built so has a connection of its own. Where there are many, build one
    /// `RedisStore` and give it to all.
    pub fn storage_from_env(self, on_failure: OnFailure) -> Self {
        self.storage_from(|name| std::env::var(name).ok(), on_failure)
    }

    /// [`storage_from_env`](RateLimiterBuilder::storage_from_env) over settings from anywhere. `RL_LOG_SALT` is
    /// looked up there, too, unless [`log_salt`](RateLimiterBuilder::log_salt) has been called.
    pub fn storage_from(
        mut self,
        lookup: impl Fn(&str) -> Option<String>,
        on_failure: OnFailure,
    ) -> Self {
        self.hasher = self.hasher.or_else(|| KeyHasher::from_lookup(&lookup));
        self.storage = env::storage(lookup, on_failure);
        self
    }

    /// What is put in the hash tag of every bucket's name in Redis, instead of its key. In a Cluster
    /// all buckets of all limiters with one tag are then in one slot, and a decision over several of
    /// them is one call; but one node has to carry them all.
    pub fn hash_tag(mut self, tag: impl AsRef<[u8]>) -> Self {
        let tag = tag.as_ref();
        // Redis takes an empty tag for none.
        self.hash_tag = (!tag.is_empty()).then(|| tag.to_vec());
        self
    }

    /// The limiter, or what is wrong.
    pub fn build(self) -> Result<RateLimiter, BuildError> {
        let limit = self.limit?;
        let keys_max = self.keys_max;
        if !(1..=KEYS_MAX_MAX).contains(&keys_max) {
            return Err(BuildError::KeysMax { keys_max });
        }
        let ttl = self.once_ttl;
        if !(Duration::from_millis(1)..=ONCE_TTL_MAX).contains(&ttl) {
            return Err(BuildError::OnceTtl { ttl });
        }
        let clock = self.clock.unwrap_or_default();
        #[cfg(feature = "prometheus")]
        let meter = self
            .metrics
            .as_ref()
            .map(|metrics| metrics.meter(&self.name));
        #[cfg(not(feature = "prometheus"))]
        let meter = None;
        let hasher = self.hasher.unwrap_or_else(KeyHasher::of_process);
        let (place, watch) = match self.storage? {
            Storage::Memory => {
                let table = Table::new(limit, keys_max, clock.now_us());
                let watch = Watch::new(Mode::Memory, hasher, meter);
                (Place::Memory(table, Once::new(ttl)), watch)
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
                let policy = Policy {
                    on_failure,
                    keys_max,
                    once_ttl: ttl,
                    leases: self.leases,
                };
                let tag = self.hash_tag.as_deref();
                let clock = clock.clone();
                let watch = Watch::new(Mode::Redis, hasher, meter.clone()).with_rule(on_failure);
                let shared = Shared::new(&store, &self.name, tag, limit, clock, policy, meter)?;
                (Place::Redis(Box::new(shared)), watch)
            }
        };
        let limiter = RateLimiter::new_in(self.name, clock, place, watch);
        #[cfg(feature = "prometheus")]
        if let Some(metrics) = &self.metrics {
            metrics.attach(&limiter);
        }
        Ok(limiter)
    }
}
