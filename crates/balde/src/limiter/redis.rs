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
use tracing::Instrument;

use super::renewal::Renewals;
use super::request::HolderId;
use crate::decision::Decision;
use crate::failure::StoreFailure;
use crate::idempotency::OpId;
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

    /// Settles a hold. It may have been made under an id that this limiter no longer uses.
    pub(super) async fn settle(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        id: &OpId,
        holder: Option<HolderId>,
    ) -> Result<Decision, StoreFailure> {
        let settling = {
            let (this, key, id) = (self.clone(), key.to_vec(), id.clone());
            async move {
                let buckets = &this.buckets;
                let deadline = buckets.deadline();
                let settled = buckets.run_as(&key, tier, command, Some(&id), holder, deadline);
                let settled = settled.await?;
                if let Some(leases) = &this.leases {
                    leases.forget_refusal(&key);
                }
                Ok(Decision::of(settled))
            }
        };
        if Handle::try_current().is_ok() {
            return settling.await;
        }
        let task = self.store().handle().spawn(settling.in_current_span());
        task.await.unwrap_or(Err(StoreFailure::Disconnected))
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
        let _later = self.run(key, Command::Take { n: 0 }, None).await;
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

    /// Decides a take from the key's lease or a cached refusal, if there is one.
    pub(super) fn try_take(&self, key: &[u8], command: Command) -> Option<Decision> {
        match (command, &self.leases) {
            (Command::Take { n }, Some(leases)) => leases.try_take(key, n),
            _ => None,
        }
    }

    /// Takes tokens. Where the store does not answer, the failure policy decides.
    pub(super) async fn decide(&self, key: &[u8], command: Command) -> Decision {
        let result = self.run(key, command, None).await;
        result.unwrap_or_else(|failure| self.buckets.fall_back(key, command, failure))
    }

    /// [`decide`](RedisLimiter::decide) for callers without `await`.
    pub(super) fn decide_blocking(&self, key: &[u8], command: Command) -> Decision {
        let result = self.run_blocking(key, command, None);
        result.unwrap_or_else(|failure| self.buckets.fall_back(key, command, failure))
    }

    /// Runs a command in the caller's runtime, or in the store's where the caller has none.
    pub(super) async fn run(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, StoreFailure> {
        if Handle::try_current().is_ok() {
            return self.execute(key, command, id).await;
        }
        let running = self.executing(key, command, id);
        let task = self.store().handle().spawn(running.in_current_span());
        task.await.unwrap_or(Err(StoreFailure::Disconnected))
    }

    /// [`run`](RedisLimiter::run) on a key whose tier the caller knows.
    pub(super) async fn run_in(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, StoreFailure> {
        let Some(tier) = tier else {
            return self.run(key, command, id).await;
        };
        let running = {
            let (this, key, id) = (self.clone(), key.to_vec(), id.cloned());
            async move {
                let (buckets, holder) = (&this.buckets, this.buckets.holder_id());
                let deadline = buckets.deadline();
                let running =
                    buckets.run_as(&key, Some(tier), command, id.as_ref(), holder, deadline);
                running.await.map(Decision::of)
            }
        };
        if Handle::try_current().is_ok() {
            return running.await;
        }
        let task = self.store().handle().spawn(running.in_current_span());
        task.await.unwrap_or(Err(StoreFailure::Disconnected))
    }

    /// [`run`](RedisLimiter::run) for callers without `await`.
    pub(super) fn run_blocking(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, StoreFailure> {
        wait(self.store(), self.executing(key, command, id)).unwrap_or(Err(StoreFailure::Timeout))
    }

    /// [`execute`](RedisLimiter::execute) as a future that borrows nothing.
    fn executing(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> impl Future<Output = Result<Decision, StoreFailure>> + Send + 'static {
        let (this, key, id) = (self.clone(), key.to_vec(), id.cloned());
        async move { this.execute(&key, command, id.as_ref()).await }
    }

    async fn execute(
        &self,
        key: &[u8],
        command: Command,
        id: Option<&OpId>,
    ) -> Result<Decision, StoreFailure> {
        let deadline = self.buckets.deadline();
        if let (Command::Take { n }, Some(leases)) = (command, &self.leases)
            && let Some(result) = leases.take(key, n, deadline).await
        {
            return result;
        }
        let decision = self.buckets.run(key, command, id, deadline).await?;
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
