//! The builder of engines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::telemetry::Denials;
#[cfg(feature = "prometheus")]
use balde::telemetry::Metrics;
use balde::{BuildError, Clock, Holds, Limit, RateLimiter};
#[cfg(feature = "redis")]
use balde::{Leases, RedisStore};

use super::ruleset::Ruleset;
use super::{Engine, Inner, State};
use crate::policy::Policy;
use crate::profile::Profile;

/// How long a credit's id is remembered by default.
const CREDIT_ID_TTL_DEFAULT: Duration = Duration::from_secs(12 * 3_600);

/// When an admitted request is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// The admission cost is taken when the request is admitted. When it ends, the difference between
    /// its price and the admission cost is charged or credited. Concurrent requests cannot be
    /// admitted with the same tokens.
    #[default]
    Reserved,
    /// Nothing is taken at admission: a request is admitted if the level is at least the admission
    /// cost, and its whole price is charged when it ends. Concurrent requests may all be admitted
    /// with the same tokens, and then take the bucket into debt.
    AfterResponse,
    /// The highest price of the request is [held](balde::RateLimiterBuilder::holds) until it ends, and
    /// then its price is charged. A request is admitted if the level, less what all requests in flight
    /// hold, is at least the admission cost. So the bucket of a server that counts its requests at any
    /// time between admission and response is never below this one.
    HighestPrice,
}

/// What a request takes from a bucket, or holds of it, until it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) tokens: u64,
    /// How many tokens must be available.
    pub(super) needed: u64,
}

impl InFlight {
    pub(super) fn claim(self, policy: &Policy, value: usize, class: Option<&str>) -> Claim {
        let admission = policy.admission();
        let tokens = match self {
            _ if admission == 0 => 0,
            Self::Reserved => admission,
            Self::AfterResponse => 0,
            Self::HighestPrice => policy.prices().highest(),
        };
        let limit = policy.limits().iter().nth(value).map(|(_, limit)| limit);
        let reserved = limit.map_or(0, |limit| policy.reserved_tokens(limit, class));
        Claim {
            tokens,
            needed: admission + reserved,
        }
    }
}

/// What happens to a request that a policy applies to but has no bucket for, because a part of the
/// key or the value of a variant is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingPart {
    /// [`Engine::admit`] returns [`AdmitError::NoBucket`](crate::AdmitError::NoBucket).
    #[default]
    Error,
    /// The policy does not apply to the request.
    Skip,
}

/// Builds an [`Engine`]. Only the profile has no default.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct EngineBuilder {
    profile: Profile,
    options: Options,
}

/// The settings of an engine that a reload does not change.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) clock: Clock,
    #[cfg(feature = "redis")]
    redis: Option<RedisStore>,
    #[cfg(feature = "prometheus")]
    metrics: Option<Metrics>,
    pub(super) is_shadow_all: bool,
    pub(super) in_flight: InFlight,
    holds: Holds,
    pub(super) on_missing_part: OnMissingPart,
    pub(super) refusal_cost: u64,
    pub(super) credit_id_ttl: Duration,
    keys_max: Option<usize>,
    denials: Denials,
    defaults: Vec<(Box<str>, Box<str>)>,
}

impl EngineBuilder {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            profile,
            options: Options {
                clock: Clock::default(),
                #[cfg(feature = "redis")]
                redis: None,
                #[cfg(feature = "prometheus")]
                metrics: None,
                is_shadow_all: false,
                in_flight: InFlight::default(),
                holds: Holds::default(),
                on_missing_part: OnMissingPart::default(),
                refusal_cost: 0,
                credit_id_ttl: CREDIT_ID_TTL_DEFAULT,
                keys_max: None,
                denials: Denials::default(),
                defaults: Vec::new(),
            },
        }
    }

    /// Sets the clock; [`Clock::precise`] by default. Buckets in Redis use the server's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Keeps the buckets in Redis, where other processes share them. While Redis is unavailable,
    /// each policy's `on_failure` decides. By default the buckets are in the memory of this
    /// process.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, store: &RedisStore) -> Self {
        self.options.redis = Some(store.clone());
        self
    }

    /// Counts the decisions of each policy, under its name.
    #[cfg(feature = "prometheus")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.options.metrics = Some(metrics.clone());
        self
    }

    /// Puts all policies into [`Mode::Shadow`](crate::Mode::Shadow), regardless of the profile.
    pub fn shadow_all(mut self) -> Self {
        self.options.is_shadow_all = true;
        self
    }

    /// Sets when admitted requests are charged; [`InFlight::Reserved`] by default.
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.options.in_flight = in_flight;
        self
    }

    /// Sets how long what a process holds is kept without it, with [`InFlight::HighestPrice`] and buckets
    /// in Redis.
    pub fn holds(mut self, holds: Holds) -> Self {
        self.options.holds = holds;
        self
    }

    /// Sets what happens to requests that lack a part of a key; [`OnMissingPart::Error`] by
    /// default.
    pub fn on_missing_part(mut self, on_missing_part: OnMissingPart) -> Self {
        self.options.on_missing_part = on_missing_part;
        self
    }

    /// Sets what a refused request costs in the bucket of each policy that applies to it; zero by
    /// default.
    pub fn refusal_cost(mut self, tokens: u64) -> Self {
        self.options.refusal_cost = tokens;
        self
    }

    /// Sets how long the id of a credit is remembered: 12 hours by default, at most seven days.
    pub fn credit_id_ttl(mut self, ttl: Duration) -> Self {
        self.options.credit_id_ttl = ttl;
        self
    }

    /// Sets the most buckets in memory, for each policy; a million by default. Beyond it, the buckets that are closest to full are forgotten
    /// ([`RateLimiterBuilder::keys_max`](balde::RateLimiterBuilder::keys_max)).
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.options.keys_max = Some(keys_max);
        self
    }

    /// Sets which refusals are logged; [`Denials::Summary`] by default.
    pub fn denials(mut self, denials: Denials) -> Self {
        self.options.denials = denials;
        self
    }

    /// Sets the value of a variant for subjects that have none [assigned](Engine::assign).
    pub fn default_value(
        mut self,
        variant: impl Into<Box<str>>,
        value: impl Into<Box<str>>,
    ) -> Self {
        self.options.defaults.push((variant.into(), value.into()));
        self
    }

    /// Builds the engine, with one limiter for each policy.
    pub fn build(self) -> Result<Engine, BuildError> {
        let Self { profile, options } = self;
        let rules = Arc::new(Ruleset::new(profile, &options)?);
        Ok(Engine(Arc::new(Inner::new(options, State::new(rules)))))
    }
}

impl Options {
    pub(super) fn default_value(&self, variant: &str) -> Option<&str> {
        let mut defaults = self.defaults.iter().rev();
        let found = defaults.find(|(name, _)| **name == *variant);
        found.map(|(_, value)| &**value)
    }

    pub(super) fn denials_of(&self, policy: &Policy) -> Denials {
        policy.denials.unwrap_or(self.denials)
    }

    pub(super) fn limiter(
        &self,
        policy: &Policy,
        limit: Limit,
        tiers: impl Iterator<Item = (String, Limit)>,
    ) -> Result<RateLimiter, BuildError> {
        let builder = RateLimiter::builder()
            .name(policy.name())
            .limit(limit)
            .tiers_by_request()
            .once_ttl(self.credit_id_ttl)
            .denials(self.denials_of(policy))
            .clock(self.clock.clone());
        let builder = tiers.fold(builder, |builder, (name, limit)| builder.tier(name, limit));
        let builder = match self.in_flight {
            InFlight::HighestPrice => builder.holds(self.holds),
            InFlight::Reserved | InFlight::AfterResponse => builder,
        };
        let builder = match self.keys_max {
            Some(keys_max) => builder.keys_max(keys_max),
            None => builder,
        };
        #[cfg(feature = "redis")]
        let builder = match &self.redis {
            Some(store) => {
                let builder = builder.redis(store, policy.on_failure());
                match policy.lease_share {
                    Some(share) => builder.leases(Leases::new().share(share)),
                    None => builder,
                }
            }
            None => builder,
        };
        #[cfg(feature = "prometheus")]
        let builder = match &self.metrics {
            Some(metrics) => builder.metrics(metrics),
            None => builder,
        };
        builder.build()
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("profile", &self.profile.name())
            .finish_non_exhaustive()
    }
}
