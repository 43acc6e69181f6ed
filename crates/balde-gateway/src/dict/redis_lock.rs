//! A lock for the gateways over one Redis: a bucket with one token.
//!
//! The token comes back by itself after [`EXPIRES`], whether or not the holder still runs. So a holder
//! must be done within [`HELD_MAX`].

use std::time::Duration;

use balde::{BuildError, Clock, Limit, OnFailure, RateLimiter, RedisStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

/// When the lock of a gateway that has died becomes free.
const EXPIRES: Duration = Duration::from_secs(60);

/// The longest time that a holder may need.
pub(super) const HELD_MAX: Duration = Duration::from_secs(45);

/// After this time without an answer of Redis the lock is given up.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(1);

/// How often a lock is tried that another gateway holds.
const RETRY: Duration = Duration::from_millis(20);

/// One lock for each key. All gateways must use the same name.
#[derive(Clone, Debug)]
pub(super) struct RedisLock(RateLimiter);

/// Frees the lock when it is released or dropped.
#[derive(Debug)]
pub(super) struct RedisLockGuard {
    limiter: RateLimiter,
    key: String,
    since: Instant,
}

/// Why there is no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotLocked {
    /// Another gateway has held it all the time.
    Held,
    /// Redis did not answer.
    Unavailable,
}

impl RedisLock {
    pub(super) fn new(name: &str, store: &RedisStore, clock: &Clock) -> Result<Self, BuildError> {
        let limit = Limit::bucket(1, EXPIRES).expect("one token in a minute");
        let builder = RateLimiter::builder().name(name).limit(limit);
        let builder = builder.clock(clock.clone()).redis(store, OnFailure::Deny);
        Ok(Self(builder.build()?))
    }

    /// Waits until no other gateway holds the lock, for `within` at most.
    pub(super) async fn lock(
        &self,
        key: &str,
        within: Duration,
    ) -> Result<RedisLockGuard, NotLocked> {
        let deadline = Instant::now() + within;
        let mut answered = Instant::now();
        loop {
            match self.try_lock(key).await {
                Ok(guard) => return Ok(guard),
                Err(NotLocked::Held) => answered = Instant::now(),
                // One slow answer is no reason to give up.
                Err(NotLocked::Unavailable) if answered.elapsed() >= UNAVAILABLE_MAX => {
                    return Err(NotLocked::Unavailable);
                }
                Err(NotLocked::Unavailable) => {}
            }
            if Instant::now() >= deadline {
                return Err(NotLocked::Held);
            }
            sleep(RETRY).await;
        }
    }

    /// Whether nobody holds the lock; false if Redis does not say.
    pub(super) async fn is_free(&self, key: &str) -> bool {
        let found = self.0.peek(key).await;
        found.is_ok_and(|found| found.remaining() > 0)
    }

    async fn try_lock(&self, key: &str) -> Result<RedisLockGuard, NotLocked> {
        let since = Instant::now();
        // A check that is refused would be logged as a denial.
        let found = self.0.peek(key).await;
        let found = found.map_err(|_| NotLocked::Unavailable)?;
        if found.remaining() == 0 {
            return Err(NotLocked::Held);
        }
        let taken = self.0.check(key).await;
        if taken.is_fallback() {
            return Err(NotLocked::Unavailable);
        }
        if !taken.is_allowed() {
            return Err(NotLocked::Held);
        }
        Ok(RedisLockGuard {
            limiter: self.0.clone(),
            key: key.to_owned(),
            since,
        })
    }
}

impl RedisLockGuard {
    pub(super) async fn release(mut self) {
        if let Some((limiter, key)) = self.take() {
            free(&limiter, &key).await;
        }
    }

    /// What is needed to free the lock: nothing if it has been freed, or belongs to somebody else by now.
    fn take(&mut self) -> Option<(RateLimiter, String)> {
        let key = std::mem::take(&mut self.key);
        let is_own = !key.is_empty() && self.since.elapsed() < EXPIRES;
        is_own.then(|| (self.limiter.clone(), key))
    }
}

impl Drop for RedisLockGuard {
    fn drop(&mut self) {
        if let (Some((limiter, key)), Ok(runtime)) = (self.take(), Handle::try_current()) {
            runtime.spawn(async move { free(&limiter, &key).await });
        }
    }
}

async fn free(limiter: &RateLimiter, key: &str) {
    if let Err(error) = limiter.credit(key, 1).await {
        tracing::debug!(%error, "a lock in Redis stays until it expires");
    }
}
