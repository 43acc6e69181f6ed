//! Tiers: limits by name, and which of them a key is under.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use balde_core::Limit;

use super::{RateLimiter, Store, Tier};
use crate::clock::Clock;
use crate::error::{BuildError, InvalidLimit, TierError};
use crate::key::BadKey;
use crate::log_throttle::LogThrottle;
use crate::store::TierId;

/// Looks up the tier of a key.
type TierLookup = Arc<dyn Fn(&[u8]) -> TierId + Send + Sync>;

/// The names of a limiter's tiers, and the function that looks up the tier of a key, if there is one.
pub(super) struct Tiers {
    names: Arc<TierNames>,
    lookup: Option<TierLookup>,
}

struct TierNames {
    /// In the order of their ids, which begin at one.
    by_id: Vec<String>,
    by_name: HashMap<String, TierId>,
    clock: Clock,
    unknown: LogThrottle,
}

/// The tiers that a builder has collected.
#[derive(Default)]
pub(super) struct TierSettings {
    tiers: Vec<(String, Result<Limit, BuildError>)>,
    lookup: Option<NameLookup>,
}

type NameLookup = Box<dyn Fn(&[u8], &TierNames) -> TierId + Send + Sync>;

impl TierSettings {
    pub(super) fn add(&mut self, name: String, limit: Result<Limit, BuildError>) {
        self.tiers.push((name, limit));
    }

    pub(super) fn set_lookup<N: AsRef<str>>(
        &mut self,
        tier_of: impl Fn(&[u8]) -> Option<N> + Send + Sync + 'static,
    ) {
        self.lookup = Some(Box::new(
            move |key: &[u8], names: &TierNames| match tier_of(key) {
                None => TierId::NONE,
                Some(name) => names.find_or_log(name.as_ref()),
            },
        ));
    }

    /// Checks the tiers. Returns them and all limits, that of keys without a tier first.
    pub(super) fn build(
        self,
        limit: Limit,
        clock: &Clock,
    ) -> Result<(Tiers, Vec<Limit>), BuildError> {
        let mut names = TierNames {
            by_id: Vec::new(),
            by_name: HashMap::new(),
            clock: clock.clone(),
            unknown: LogThrottle::new(),
        };
        let mut limits = vec![limit];
        for (name, limit) in self.tiers {
            let tier = TierId::new(limits.len()).ok_or(BuildError::TooManyTiers {
                tiers_max: TierId::MAX,
            })?;
            limits.push(InvalidLimit::check_window(limit?)?);
            if names.by_name.insert(name.clone(), tier).is_some() {
                return Err(BuildError::TierTwice { name });
            }
            names.by_id.push(name);
        }
        let names = Arc::new(names);
        let lookup = self.lookup.map(|lookup| -> TierLookup {
            let names = Arc::clone(&names);
            Arc::new(move |key: &[u8]| lookup(key, &names))
        });
        Ok((Tiers { names, lookup }, limits))
    }
}

impl fmt::Debug for TierSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.tiers.iter().map(|(name, limit)| (name, limit)))
            .finish()
    }
}

impl Tiers {
    pub(super) fn lookup(&self) -> Option<&TierLookup> {
        self.lookup.as_ref()
    }

    fn find(&self, name: &str) -> Result<TierId, TierError> {
        let found = self.names.by_name.get(name).copied();
        found.ok_or_else(|| TierError::Unknown {
            name: name.to_owned(),
        })
    }

    fn name(&self, tier: TierId) -> Option<&str> {
        let index = tier.index().checked_sub(1)?;
        self.names.by_id.get(index).map(String::as_str)
    }
}

impl TierNames {
    fn find_or_log(&self, name: &str) -> TierId {
        if let Some(tier) = self.by_name.get(name) {
            return *tier;
        }
        if let Some(suppressed) = self.unknown.allow(self.clock.now_us()) {
            tracing::warn!(
                event_type = "unknown_tier",
                tier = name,
                suppressed,
                "the function of tier_of returned a tier that the limiter does not have; \
                 the limit of keys without a tier applies"
            );
        }
        TierId::NONE
    }
}

impl RateLimiter {
    /// Moves a key to a tier that was named with
    /// [`RateLimiterBuilder::tier`](crate::RateLimiterBuilder::tier): from now on it is under that
    /// tier's limit. The bucket keeps its deficit, within what the new limit allows, as
    /// [`set_limit`](RateLimiter::set_limit) does.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use balde::RateLimiter;
    ///
    /// let limiter = RateLimiter::builder()
    ///     .limit("10/min") // keys without a tier
    ///     .tier("gold", "100/min")
    ///     .build()?;
    /// assert_eq!(limiter.check("alice").await.remaining(), 9);
    ///
    /// limiter.set_tier("alice", "gold").await?;
    /// assert_eq!(limiter.check("alice").await.remaining(), 98); // two are gone, not one
    /// # Ok(()) }) }
    /// ```
    ///
    /// The assignment is kept in this process until it is changed,
    /// [cleared](RateLimiter::clear_tier), or the key [forgotten](RateLimiter::forget). In memory
    /// such a key is neither swept nor evicted, so assigned keys count against `keys_max` at all
    /// times. Where the buckets are in Redis, every process needs the assignment; use
    /// [`tier_of`](crate::RateLimiterBuilder::tier_of) to look tiers up where they are kept.
    pub async fn set_tier(&self, key: impl AsRef<[u8]>, tier: &str) -> Result<(), TierError> {
        let tier = self.0.tiers.find(tier)?;
        self.assign(key.as_ref(), tier).await
    }

    /// Finds a tier by its name, for [`TokenRequest::in_tier`](crate::TokenRequest::in_tier).
    pub fn find_tier(&self, name: &str) -> Result<Tier, TierError> {
        self.0.tiers.find(name).map(Tier)
    }

    /// Moves a key back to the limit of keys without a tier. The bucket keeps its deficit.
    pub async fn clear_tier(&self, key: impl AsRef<[u8]>) -> Result<(), TierError> {
        self.assign(key.as_ref(), TierId::NONE).await
    }

    /// The tier of a key; `None` if it has none.
    pub fn tier(&self, key: impl AsRef<[u8]>) -> Option<&str> {
        let key = key.as_ref();
        let tier = match (&self.0.tiers.lookup, &self.0.store) {
            (Some(lookup), _) => lookup(key),
            (None, Store::Memory(table, _)) => table.tier(key),
            #[cfg(feature = "redis")]
            (None, Store::Redis(redis)) => redis.buckets().tier(key),
        };
        self.0.tiers.name(tier)
    }

    /// Replaces the limit of a tier for all its keys, as [`set_limit`](RateLimiter::set_limit) does
    /// for keys without a tier.
    pub fn set_tier_limit<L>(&self, tier: &str, limit: L) -> Result<(), TierError>
    where
        L: TryInto<Limit>,
        L::Error: Into<InvalidLimit>,
    {
        let tier = self.0.tiers.find(tier)?;
        let limit = InvalidLimit::check_window(limit.try_into().map_err(Into::into)?)?;
        Ok(self.replace_limit(tier, limit)?)
    }

    /// The current limit of a tier.
    pub fn tier_limit(&self, tier: &str) -> Result<Limit, TierError> {
        let tier = self.0.tiers.find(tier)?;
        Ok(match &self.0.store {
            Store::Memory(table, _) => table.tier_limit(tier),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.buckets().tier_limit(tier),
        })
    }

    pub(super) fn replace_limit(&self, tier: TierId, limit: Limit) -> Result<(), InvalidLimit> {
        match &self.0.store {
            Store::Memory(table, _) => table.set_tier_limit(tier, limit, || self.now_us()),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.set_limit(tier, limit)?,
        }
        #[cfg(feature = "tokio")]
        self.waiters().all_buckets_changed();
        Ok(())
    }

    /// The tier of a key, where a function looks it up. The memory store knows the others.
    #[inline]
    pub(crate) fn given_tier(&self, key: &[u8]) -> Option<TierId> {
        self.0.tiers.lookup.as_ref().map(|lookup| lookup(key))
    }

    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "nothing waits in memory")
    )]
    async fn assign(&self, key: &[u8], tier: TierId) -> Result<(), TierError> {
        self.assign_here(key, tier)?;
        #[cfg(feature = "redis")]
        if let Some(redis) = self.redis() {
            redis.convert(key).await;
        }
        self.tier_changed(key);
        Ok(())
    }

    pub(super) fn assign_blocking(&self, key: &[u8], tier: Option<&str>) -> Result<(), TierError> {
        let tier = match tier {
            None => TierId::NONE,
            Some(name) => self.0.tiers.find(name)?,
        };
        self.assign_here(key, tier)?;
        #[cfg(feature = "redis")]
        if let Some(redis) = self.redis() {
            redis.convert_blocking(key);
        }
        self.tier_changed(key);
        Ok(())
    }

    fn assign_here(&self, key: &[u8], tier: TierId) -> Result<(), TierError> {
        let key = BadKey::check(key)?;
        if self.0.tiers.lookup.is_some() {
            return Err(TierError::LookedUp);
        }
        let is_kept = match &self.0.store {
            Store::Memory(table, _) => table.set_tier(key, tier, self.now_us()),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.buckets().set_tier(key, tier),
        };
        if is_kept {
            Ok(())
        } else {
            Err(TierError::Full)
        }
    }

    fn tier_changed(&self, key: &[u8]) {
        #[cfg(feature = "tokio")]
        self.waiters().bucket_changed(key);
        #[cfg(not(feature = "tokio"))]
        let _ = key;
    }
}
