//! A lock that gateways over one Redis share: a bucket with one token.

use std::time::Duration;

use balde::{BuildError, Clock, OnFailure, RateLimiter, RedisStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// The token comes back by itself after this time, if the gateway that holds the lock has died.
const LIMIT: &str = "1/min";

/// How often a lock is tried that somebody else holds.
const RETRY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct SharedLock(RateLimiter);

/// Gives the token back when it is dropped.
#[derive(Debug)]
pub(crate) struct SharedGuard {
    limiter: RateLimiter,
    key: String,
}

impl SharedLock {
    /// A lock for each key. All gateways must use the same name.
    pub(crate) fn new(name: &str, store: &RedisStore, clock: &Clock) -> Result<Self, BuildError> {
        let builder = RateLimiter::builder().name(name).limit(LIMIT);
        let builder = builder.clock(clock.clone()).redis(store, OnFailure::Deny);
        Ok(Self(builder.build()?))
    }

    /// Waits until nobody else holds the lock. `None` if that takes longer than `within`, or if Redis
    /// cannot be reached.
    pub(crate) async fn lock(&self, key: &str, within: Duration) -> Option<SharedGuard> {
        let deadline = Instant::now() + within;
        loop {
            let decision = self.0.check(key).await;
            if decision.is_fallback() {
                return None;
            }
            if decision.is_allowed() {
                return Some(SharedGuard {
                    limiter: self.0.clone(),
                    key: key.to_owned(),
                });
            }
            if Instant::now() >= deadline {
                return None;
            }
            sleep(RETRY).await;
        }
    }
}

impl Drop for SharedGuard {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (limiter, key) = (self.limiter.clone(), std::mem::take(&mut self.key));
        runtime.spawn(async move {
            if let Err(error) = limiter.credit(&key, 1).await {
                tracing::debug!(%error, "a lock in Redis stays until it expires");
            }
        });
    }
}
