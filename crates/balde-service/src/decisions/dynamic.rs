//! Limits that requests bring along: one limiter, in which each different limit is a tier.
//!
//! A key has one bucket, whatever limits it is used with. When the limit of a key changes, the bucket
//! keeps its deficit in tokens: a bucket that was 3 tokens below full is 3 tokens below full under the
//! new limit.

use std::collections::HashMap;

use balde::telemetry::Metrics;
use balde::{BuildError, Clock, Limit, OnFailure, RateLimiter, RedisStore, Tier, TokenRequest};
use parking_lot::RwLock;

use super::error::CommandError;

/// The name of the limiter, in metrics and in Redis.
pub(crate) const DYNAMIC_NAME: &str = "dynamic";

/// Where the buckets of limits that requests bring along are kept, and how many there may be.
#[derive(Clone, Debug)]
pub(crate) struct DynamicOptions {
    pub(crate) redis: Option<(RedisStore, OnFailure)>,
    pub(crate) keys_max: usize,
    pub(crate) limits_max: usize,
    pub(crate) clock: Clock,
}

/// The limits so far, each with its tier.
#[derive(Debug)]
pub(super) struct DynamicLimits {
    limiter: RateLimiter,
    tiers: RwLock<HashMap<Limit, Tier>>,
    limits_max: usize,
}

impl DynamicLimits {
    pub(super) fn new(options: DynamicOptions, metrics: &Metrics) -> Result<Self, BuildError> {
        let mut builder = RateLimiter::builder()
            .name(DYNAMIC_NAME)
            .limit("1/s")
            .keys_max(options.keys_max)
            .clock(options.clock)
            .metrics(metrics)
            .tiers_by_request();
        // Tiers are named when a limiter is built; their limits are set when they are first used.
        for index in 0..options.limits_max {
            builder = builder.tier(index.to_string(), "1/s");
        }
        if let Some((store, on_failure)) = &options.redis {
            builder = builder.redis(store, *on_failure);
        }
        Ok(Self {
            limiter: builder.build()?,
            tiers: RwLock::default(),
            limits_max: options.limits_max,
        })
    }

    /// A request for tokens of a key under a limit.
    pub(super) fn request<'r>(
        &'r self,
        key: &'r [u8],
        limit: Limit,
        tokens: u64,
    ) -> Result<TokenRequest<'r>, CommandError> {
        let tier = self.tier(limit)?;
        Ok(self.limiter.request_n(key, tokens).in_tier(tier))
    }

    pub(super) fn limiter(&self) -> &RateLimiter {
        &self.limiter
    }

    fn tier(&self, limit: Limit) -> Result<Tier, CommandError> {
        if let Some(tier) = self.tiers.read().get(&limit) {
            return Ok(*tier);
        }
        let mut tiers = self.tiers.write();
        if let Some(tier) = tiers.get(&limit) {
            return Ok(*tier);
        }
        if tiers.len() >= self.limits_max {
            return Err(CommandError::Full("so many different dynamic limits"));
        }
        let name = tiers.len().to_string();
        let invalid = |error: balde::TierError| CommandError::Invalid(error.to_string());
        self.limiter.set_tier_limit(&name, limit).map_err(invalid)?;
        let tier = self.limiter.find_tier(&name).map_err(invalid)?;
        tiers.insert(limit, tier);
        Ok(tier)
    }
}
