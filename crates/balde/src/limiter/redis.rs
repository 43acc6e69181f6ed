//! A limiter whose buckets are in Redis: its buckets, its leases, and how calls reach the store from
//! any executor.
//!
//! Inside a tokio runtime a call runs where it is awaited. On any other executor, and for blocking
//! callers, it runs in the store's runtime and the caller waits for the result.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use balde_core::{Command, Limit, LimitError};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Instrument;

use super::renewal::Renewals;
use super::target::Target;
use crate::decision::Decision;
use crate::failure::StoreFailure;
use crate::lease::{LeaseManager, Leases};
use crate::store::TierId;
use crate::store::redis::{RedisBuckets, RedisStore};

/// How long a blocking caller waits beyond the store's own timeout, for its thread to wake up.
const SLACK: Duration = Duration::from_millis(5);

/// The buckets and leases of one limiter. Clones share them.
#[derive(Clone)]
pub(crate) struct RedisLimiter {
    buckets: Arc<RedisBuckets>,
    leases: Option<LeaseManager>,
    renewals: Arc<Renewals>,
}

impl RedisLimiter {
    pub(super) fn new(buckets: RedisBuckets, leases: Option<Leases>) -> Self {
        let buckets = Arc::new(buckets);
        Self {
            leases: leases.map(|leases| LeaseManager::new(Arc::clone(&buckets), leases)),
            renewals: Arc::new(Renewals::new(&buckets)),
            buckets,
        }
    }

    pub(crate) fn buckets(&self) -> &RedisBuckets {
        &self.buckets
    }

    pub(crate) fn store(&self) -> &RedisStore {
        self.buckets.store()
    }

    pub(crate) fn renewals(&self) -> &Arc<Renewals> {
        &self.renewals
    }

    pub(super) fn leases(&self) -> Option<&LeaseManager> {
        self.leases.as_ref()
    }

    pub(super) fn set_limit(&self, tier: TierId, limit: Limit) -> Result<(), LimitError> {
        self.buckets.set_limit(tier, limit)?;
        if let Some(leases) = &self.leases {
            leases.forget_refusals();
        }
        Ok(())
    }

    /// Converts the bucket of a key whose tier has changed, so that it refills at the new rate from
    /// now on. If the store does not answer, the next command converts it.
    pub(super) async fn convert(&self, key: &[u8]) {
        if let Some(leases) = &self.leases {
            leases.release_key(key).await;
        }
        let _later = self.run(&Target::new(key), Command::Take { n: 0 }).await;
    }

    /// [`convert`](RedisLimiter::convert) for callers without `await`.
    pub(super) fn convert_blocking(&self, key: &[u8]) {
        let (this, key) = (self.clone(), key.to_vec());
        wait(self.store(), async move { this.convert(&key).await });
    }

    /// Removes a key with its bucket, its tier and its lease.
    pub(super) async fn forget(&self, key: &[u8]) -> Result<(), StoreFailure> {
        self.buckets.set_tier(key, TierId::NONE);
        if let Some(leases) = &self.leases {
            leases.forget_key(key).await;
        }
        if Handle::try_current().is_ok() {
            return self.buckets.forget(key).await;
        }
        let (this, key) = (self.clone(), key.to_vec());
        let forgetting = async move { this.buckets.forget(&key).await };
        let task = self.store().handle().spawn(forgetting);
        task.await.unwrap_or(Err(StoreFailure::Disconnected))
    }

    /// [`forget`](RedisLimiter::forget) for callers without `await`.
    pub(super) fn forget_blocking(&self, key: &[u8]) -> Result<(), StoreFailure> {
        let (this, key) = (self.clone(), key.to_vec());
        let forgetting = async move { this.forget(&key).await };
        wait(self.store(), forgetting).unwrap_or(Err(StoreFailure::Timeout))
    }

    /// Whether a command takes tokens from leases: only a plain take does.
    pub(crate) fn is_leased(&self, command: Command) -> bool {
        self.leases.is_some() && matches!(command, Command::Take { .. })
    }

    /// Decides a take from the key's lease or a cached refusal, if there is one.
    pub(crate) fn try_take(&self, target: &Target<'_>, command: Command) -> Option<Decision> {
        match (command, &self.leases) {
            (Command::Take { n }, Some(leases)) => leases.try_take(target.key, target.tier, n),
            _ => None,
        }
    }

    /// Takes tokens from the key's lease, which requests more of the store if it has too few. Returns
    /// `None` if leases do not apply.
    pub(crate) async fn take_leased(
        &self,
        target: &Target<'_>,
        command: Command,
        deadline: Instant,
    ) -> Option<Result<Decision, StoreFailure>> {
        let (Command::Take { n }, Some(leases)) = (command, &self.leases) else {
            return None;
        };
        leases.take(target.key, target.tier, n, deadline).await
    }

    /// Takes back tokens of a lease that were not used.
    pub(crate) async fn return_leased(&self, target: &Target<'_>, n: u64) {
        if let Some(leases) = &self.leases {
            leases.put_back(target.key, target.tier, n).await;
        }
    }

    /// Takes tokens. Where the store does not answer, the failure policy decides.
    pub(super) async fn decide(&self, key: &[u8], command: Command) -> Decision {
        let result = self.run(&Target::new(key), command).await;
        result.unwrap_or_else(|failure| self.buckets.fall_back(key, command, failure))
    }

    /// [`decide`](RedisLimiter::decide) for callers without `await`.
    pub(super) fn decide_blocking(&self, key: &[u8], command: Command) -> Decision {
        let result = self.run_blocking(&Target::new(key), command);
        result.unwrap_or_else(|failure| self.buckets.fall_back(key, command, failure))
    }

    /// Runs a command in the caller's runtime, or in the store's where the caller has none.
    pub(super) async fn run(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, StoreFailure> {
        if Handle::try_current().is_ok() {
            return self.execute(target, command).await;
        }
        let running = self.executing(target, command);
        let task = self.store().handle().spawn(running.in_current_span());
        task.await.unwrap_or(Err(StoreFailure::Disconnected))
    }

    /// [`run`](RedisLimiter::run) for callers without `await`.
    pub(super) fn run_blocking(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, StoreFailure> {
        wait(self.store(), self.executing(target, command)).unwrap_or(Err(StoreFailure::Timeout))
    }

    /// [`execute`](RedisLimiter::execute) as a future that borrows nothing.
    fn executing(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> impl Future<Output = Result<Decision, StoreFailure>> + Send + 'static {
        let Target { tier, holder, .. } = *target;
        let (this, key, id) = (self.clone(), target.key.to_vec(), target.id.cloned());
        async move {
            let (key, id) = (key.as_slice(), id.as_ref());
            let target = Target {
                key,
                tier,
                id,
                holder,
            };
            this.execute(&target, command).await
        }
    }

    async fn execute(
        &self,
        target: &Target<'_>,
        command: Command,
    ) -> Result<Decision, StoreFailure> {
        let deadline = self.buckets.deadline();
        if let Some(result) = self.take_leased(target, command, deadline).await {
            return result;
        }
        let Target { key, tier, id, .. } = *target;
        let holder = target.holder.or_else(|| self.buckets.holder_id());
        let running = self
            .buckets
            .run_as(key, tier, command, id, holder, deadline);
        let decision = running.await?;
        if let Some(leases) = &self.leases
            && !matches!(command, Command::Take { .. } | Command::TakeUpTo { .. })
        {
            leases.forget_refusal(key);
        }
        Ok(Decision::of(decision))
    }
}

/// Runs `future` in the store's runtime and blocks until it ends, a little longer than the store's
/// timeout at most.
///
/// Unlike tokio's `block_on`, this does not panic inside a runtime. It blocks the thread there, and
/// where the store's runtime has only that thread, the call times out without being sent.
pub(crate) fn wait<T: Send + 'static>(
    store: &RedisStore,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let running = async move {
        // The caller may have given up.
        let _gone = sender.send(future.await);
    };
    let task = store.handle().spawn(running.in_current_span());
    let result = receiver.recv_timeout(store.timeout() + SLACK).ok();
    if result.is_none() {
        task.abort();
    }
    result
}
