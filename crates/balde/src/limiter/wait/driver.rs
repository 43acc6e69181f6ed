//! The task that takes tokens for a queue: one per key, for as long as requests wait.
//!
//! It asks the store only when the answer is expected to be yes: at once when the queue begins, then
//! at the time that the last decision promised. If another caller took the tokens meanwhile, the new
//! refusal has a new promise. So a queue costs about one call per grant, or fewer: a grant also
//! shows how many tokens are left, and those behind for whom they suffice are served with one call.

use balde_core::{Command, Decision as CoreDecision, Wait};
use tokio::runtime::Handle;
#[cfg(feature = "redis")]
use tokio::time::Duration;
use tokio::time::{Instant, timeout_at};

use super::queue::{Known, Next};
#[cfg(feature = "redis")]
use super::{Refused, WaitResult};
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::StoreFailure;
#[cfg(feature = "redis")]
use crate::limiter::Target;
use crate::limiter::{RateLimiter, Store};
use crate::store::memory;
#[cfg(feature = "redis")]
use crate::store::redis::{RedisStep, refund};

/// The shortest time after which a store that has failed is tried again.
#[cfg(feature = "redis")]
const RETRY_MIN: Duration = Duration::from_millis(10);

pub(super) fn start(runtime: &Handle, limiter: RateLimiter, key: Box<[u8]>) {
    let driver = Driver {
        limiter,
        key,
        is_done: false,
    };
    runtime.spawn(driver.run());
}

/// Gives the tokens of a request back that was dropped before it saw its grant.
pub(super) fn give_back(limiter: &RateLimiter, key: &[u8], granted: &Decision) {
    let n = granted.moved();
    match limiter.store() {
        Store::Memory(table, _) => {
            let credit = Command::Credit { n };
            memory::run(&limiter.memory_step(table, key, credit, limiter.now_us()));
            limiter.waiters().bucket_changed(key);
        }
        #[cfg(feature = "redis")]
        Store::Redis(redis) if granted.is_fallback() => redis.buckets().credit_local(key, None, n),
        #[cfg(feature = "redis")]
        Store::Redis(redis) => {
            let credit = RedisStep {
                buckets: redis.buckets(),
                key,
                tier: None,
                command: Command::Credit { n },
                holder: None,
            };
            if let Some(refund) = refund(&[credit]) {
                let (limiter, key) = (limiter.clone(), key.to_vec());
                redis.store().handle().spawn(async move {
                    refund.run().await;
                    limiter.waiters().bucket_changed(&key);
                });
            }
        }
    }
}

struct Driver {
    limiter: RateLimiter,
    key: Box<[u8]>,
    is_done: bool,
}

impl Driver {
    async fn run(mut self) {
        let Some(changed) = self.limiter.waiters().changed(&self.key) else {
            self.is_done = true;
            return;
        };
        let mut known = Known::Nothing;
        loop {
            match self
                .limiter
                .waiters()
                .next(&self.key, &known, Instant::now())
            {
                Next::Take { n } => known = self.take(n).await,
                Next::Sleep(until) => {
                    // Whichever comes first, the queue is looked at again.
                    let _either = timeout_at(until, changed.notified()).await;
                }
                Next::Done => {
                    self.is_done = true;
                    return;
                }
            }
        }
    }

    async fn take(&self, n: u64) -> Known {
        match self.limiter.store() {
            Store::Memory(table, _) => {
                let run = |command| {
                    let now_us = self.limiter.now_us();
                    memory::run(&self.limiter.memory_step(table, &self.key, command, now_us))
                };
                let decision = run(Command::Take { n });
                let left = self.hand_out(&decision);
                if left == 0 {
                    return Known::Decision(decision, Instant::now());
                }
                run(Command::Credit { n: left });
                Known::Nothing
            }
            #[cfg(feature = "redis")]
            Store::Redis(_) => self.take_in_redis(n).await,
        }
    }

    /// Hands a decision to those who wait. Returns the tokens that nobody needs any more.
    fn hand_out(&self, decision: &CoreDecision) -> u64 {
        let waiters = self.limiter.waiters();
        if decision.is_allowed() {
            return waiters.grant(&self.key, decision);
        }
        if decision.wait() == Wait::Never {
            waiters.refuse_over_capacity(&self.key, decision);
        }
        0
    }
}

#[cfg(feature = "redis")]
impl Driver {
    async fn take_in_redis(&self, n: u64) -> Known {
        let Some(redis) = self.limiter.redis() else {
            return Known::Nothing;
        };
        let take = Command::Take { n };
        let buckets = redis.buckets();
        let leased = redis.try_take(&Target::new(&self.key), take);
        let decided = if let Some(leased) = leased.filter(Decision::is_allowed) {
            Ok(*leased.core())
        } else {
            let calling = buckets.run(&self.key, take, None, buckets.deadline());
            self.until_decided(calling).await
        };
        let decision = match decided {
            Ok(decision) => decision,
            Err(failure) => return self.fall_back(failure),
        };
        let left = self.hand_out(&decision);
        if left == 0 {
            return Known::Decision(decision, Instant::now());
        }
        let credit = RedisStep {
            buckets,
            key: &self.key,
            tier: None,
            command: Command::Credit { n: left },
            holder: None,
        };
        if let Some(refund) = refund(&[credit]) {
            // The task continues if this takes too long.
            let refunding = tokio::spawn(refund.run());
            let _late = timeout_at(buckets.deadline(), refunding).await;
        }
        Known::Nothing
    }

    /// Awaits a call, and meanwhile refuses those whose deadline passes.
    async fn until_decided<T>(&self, calling: impl Future<Output = T>) -> T {
        let mut calling = std::pin::pin!(calling);
        loop {
            let deadline = self.limiter.waiters().expire_now(&self.key, Instant::now());
            let Some(deadline) = deadline else {
                return calling.await;
            };
            if let Ok(result) = timeout_at(deadline, &mut calling).await {
                return result;
            }
        }
    }

    /// Decides by the failure policy, for the first in line.
    fn fall_back(&self, failure: StoreFailure) -> Known {
        let (Some(redis), Some((id, n))) = (
            self.limiter.redis(),
            self.limiter.waiters().first(&self.key),
        ) else {
            return Known::Nothing;
        };
        let buckets = redis.buckets();
        let decision = buckets.fall_back(&self.key, Command::Take { n }, failure);
        let result: WaitResult = match decision.wait() {
            Wait::None => Ok(decision),
            Wait::Never => Err(Refused::over_capacity(decision.core())),
            Wait::Us(_) if !failure.is_transient() => Err(Refused::unavailable(failure, decision)),
            // The store is tried again then, or a local bucket has promised tokens.
            Wait::Us(us) => {
                let wait = Duration::from_micros(us).max(RETRY_MIN);
                return Known::Until(Instant::now() + wait);
            }
        };
        let is_gone = !self.limiter.waiters().finish(&self.key, id, result);
        if is_gone && decision.is_allowed() {
            buckets.credit_local(&self.key, None, decision.moved());
        }
        Known::Nothing
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_done {
            self.limiter.waiters().driver_ended(&self.key);
        }
    }
}
