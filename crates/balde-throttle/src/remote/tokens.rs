//! Tokens from the buckets in Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use balde::{BuildError, Clock, OnFailure, RateLimiter, RedisStore, check_all};
use parking_lot::Mutex;

use crate::rate::Pace;
use crate::settings::Settings;

/// The shortest and the longest time between two calls for one partition that has no tokens.
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The global bucket, and a bucket for each partition.
pub(crate) struct RemoteTokens {
    throttler: String,
    clock: Clock,
    store: RedisStore,
    on_failure: OnFailure,
    global: RateLimiter,
    /// The limiters of partitions, by name: at most `limiters_max`.
    limiters: Mutex<HashMap<Arc<str>, RateLimiter>>,
    limiters_max: usize,
}

/// Tokens to fetch for a partition's queue.
pub(crate) struct FetchRequest {
    pub(crate) partition: Arc<str>,
    pub(crate) pace: Pace,
    pub(crate) n: u64,
}

impl RemoteTokens {
    pub(super) fn new(
        settings: &Settings,
        clock: &Clock,
        store: &RedisStore,
        on_failure: OnFailure,
    ) -> Result<Self, BuildError> {
        let pace = settings.pace(settings.global_rate);
        Ok(Self {
            global: limiter(&settings.name, &pace, clock, store, on_failure)?,
            throttler: settings.name.clone(),
            clock: clock.clone(),
            store: store.clone(),
            on_failure,
            limiters: Mutex::default(),
            limiters_max: 2 * settings.partitions_max,
        })
    }

    pub(crate) fn set_rate(&self, pace: &Pace) {
        // The limit of a pace is always valid.
        let _always = self.global.set_limit(*pace.limit());
    }

    /// Takes the requested tokens or, if there are fewer, those that there are. Returns how many, or
    /// how long to wait if there are none.
    pub(crate) async fn fetch(&self, request: &FetchRequest) -> Result<u64, Duration> {
        let Ok(limiter) = self.limiter(request) else {
            return Err(RETRY_MAX);
        };
        let key = bucket_key(&request.partition);
        let (available, wait) = match self.take(&limiter, &key, request.n).await {
            Ok(()) => return Ok(request.n),
            Err(refused) => refused,
        };
        if (1..request.n).contains(&available) && self.take(&limiter, &key, available).await.is_ok()
        {
            return Ok(available);
        }
        Err(wait.clamp(RETRY_MIN, RETRY_MAX))
    }

    /// Gives back tokens that no waiter needs. Tokens that cannot be given back, because the store
    /// fails, return with the refill.
    pub(crate) async fn give_back(&self, request: &FetchRequest) {
        let Ok(limiter) = self.limiter(request) else {
            return;
        };
        let key = bucket_key(&request.partition);
        let _lost = limiter.credit(&key, request.n).await;
        let _lost = self.global.credit("global", request.n).await;
    }

    /// Takes `n` tokens from both buckets; or returns how many there are, and how long until there are
    /// `n`.
    async fn take(&self, limiter: &RateLimiter, key: &str, n: u64) -> Result<(), (u64, Duration)> {
        let requests = [
            limiter.request_n(key, n),
            self.global.request_n("global", n),
        ];
        let decision = check_all(&requests).await;
        if decision.is_allowed() {
            return Ok(());
        }
        let available = decision.parts().iter().map(|part| {
            if part.is_fallback() {
                0
            } else {
                part.remaining()
            }
        });
        let wait = decision.retry_after().unwrap_or(RETRY_MAX);
        Err((available.min().unwrap_or(0), wait))
    }

    fn limiter(&self, request: &FetchRequest) -> Result<RateLimiter, BuildError> {
        let mut limiters = self.limiters.lock();
        if let Some(limiter) = limiters.get(&request.partition) {
            if limiter.limit() != *request.pace.limit() {
                limiter.set_limit(*request.pace.limit())?;
            }
            return Ok(limiter.clone());
        }
        if limiters.len() >= self.limiters_max {
            limiters.clear();
        }
        let made = limiter(
            &self.throttler,
            &request.pace,
            &self.clock,
            &self.store,
            self.on_failure,
        )?;
        limiters.insert(Arc::clone(&request.partition), made.clone());
        Ok(made)
    }
}

fn bucket_key(partition: &str) -> String {
    format!("partition {partition}")
}

fn limiter(
    throttler: &str,
    pace: &Pace,
    clock: &Clock,
    store: &RedisStore,
    on_failure: OnFailure,
) -> Result<RateLimiter, BuildError> {
    RateLimiter::builder()
        .name(format!("throttle {throttler}"))
        .limit(*pace.limit())
        .hash_tag(throttler)
        .keys_max(1)
        .clock(clock.clone())
        .redis(store, on_failure)
        .build()
}
