//! The limiter: one limit over many keys.

mod blocking;
mod builder;
mod decide;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod renewal;
mod request;
#[cfg(feature = "redis")]
mod settlements;
mod target;
mod tiers;
#[cfg(feature = "tokio")]
mod wait;

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::time::Duration;

use balde_core::{Command, Limit};

use crate::clock::Clock;
use crate::decision::Decision;
#[cfg(feature = "tokio")]
use crate::error::AcquireError;
use crate::error::{BuildError, Error, InvalidLimit};
use crate::idempotency::{OpId, OperationLog};
use crate::key::BadKey;
#[cfg(feature = "redis")]
use crate::lease::{LeaseManager, LeaseStats};
use crate::store::TierId;
use crate::store::memory::{MemoryStats, Table};
use crate::telemetry::{Denials, Observer};

pub use blocking::Blocking;
pub use builder::RateLimiterBuilder;
#[cfg(feature = "options")]
pub(crate) use builder::{KEYS_MAX_DEFAULT, ONCE_TTL_MAX, ONCE_TTL_MIN};
#[cfg(feature = "redis")]
pub(crate) use redis::{RedisLimiter, wait};
#[cfg(feature = "redis")]
pub(crate) use renewal::Renewed;
pub(crate) use request::HolderId;
#[cfg(feature = "redis")]
pub(crate) use request::OwnedRequest;
pub use request::{Tier, TokenRequest};
#[cfg(feature = "redis")]
pub(crate) use settlements::{SettlementGuard, Settlements};
pub(crate) use target::Target;
#[cfg(feature = "tokio")]
use wait::{Timer, Waiters};

use self::tiers::Tiers;

/// Limits callers, each by its key. Clones share their buckets.
///
/// A key is a sequence of bytes, such as a user id, an address, or a tenant and a route joined by a
/// separator. The memory store keeps only hashes of keys; Redis stores keys in plain text.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use balde::RateLimiter;
///
/// let limiter = RateLimiter::new("10/s burst 20")?;
/// let decision = limiter.check("alice").await;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 19);
/// # Ok(()) }) }
/// ```
#[derive(Clone)]
pub struct RateLimiter(Arc<Inner>);

struct Inner {
    clock: Clock,
    store: Store,
    tiers: Tiers,
    observer: Observer,
    #[cfg(feature = "redis")]
    settlements: Settlements,
    #[cfg(feature = "tokio")]
    waiters: Waiters,
}

/// Where a limiter keeps its buckets.
#[cfg_attr(
    feature = "redis",
    expect(
        clippy::large_enum_variant,
        reason = "there is one per limiter, and an indirection would slow down every check in memory"
    )
)]
pub(crate) enum Store {
    Memory(Table, OperationLog),
    #[cfg(feature = "redis")]
    Redis(RedisLimiter),
}

impl RateLimiter {
    /// Creates a limiter in memory, with default settings.
    pub fn new<L>(limit: L) -> Result<Self, BuildError>
    where
        L: TryInto<Limit>,
        L::Error: Into<InvalidLimit>,
    {
        Self::builder().limit(limit).build()
    }

    /// Returns a builder, to choose a store, a name, a clock and more.
    pub fn builder() -> RateLimiterBuilder {
        RateLimiterBuilder::new()
    }

    fn from_parts(
        clock: Clock,
        store: Store,
        tiers: Tiers,
        observer: Observer,
        #[cfg(feature = "tokio")] waiters: Waiters,
    ) -> Self {
        Self(Arc::new(Inner {
            clock,
            store,
            tiers,
            observer,
            #[cfg(feature = "redis")]
            settlements: Settlements::default(),
            #[cfg(feature = "tokio")]
            waiters,
        }))
    }

    /// Returns the same limiter for callers without `await`.
    ///
    /// Where the buckets are in Redis, each call blocks the thread for a round trip, so do not use
    /// it in async code. Inside a tokio runtime it does not panic; in a runtime with one thread it
    /// times out.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking::new(self)
    }

    /// Takes one token.
    #[inline]
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.decide(key.as_ref(), Command::Take { n: 1 }).await
    }

    /// Takes `n` tokens, or none.
    #[inline]
    pub async fn check_n(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::Take { n }).await
    }

    /// Takes as many tokens as are available, at most `n`; [`Decision::moved`] returns how many.
    #[inline]
    pub async fn take_up_to(&self, key: impl AsRef<[u8]>, n: u64) -> Decision {
        self.decide(key.as_ref(), Command::TakeUpTo { n }).await
    }

    /// Waits until the bucket has `n` tokens, and takes them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use balde::{Clock, RateLimiter};
    ///
    /// // The clock follows tokio's, so that this example runs in paused time.
    /// let limiter = RateLimiter::builder().limit("10/s").clock(Clock::tokio()).build()?;
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire("alice", 10).await?; // at once: the bucket is full
    /// limiter.acquire("alice", 3).await?;
    /// assert_eq!(start.elapsed().as_millis(), 300);
    /// # Ok(()) }
    /// ```
    ///
    /// Requests for one key are served in the order in which they came: a large request is not
    /// overtaken by smaller ones behind it. The wait is the one that a refused
    /// [`check`](RateLimiter::check) promises, to the millisecond of tokio's timers, and nothing
    /// polls the bucket meanwhile. A request for more tokens than the bucket can ever hold fails at
    /// once.
    ///
    /// The future can be dropped at any time: the request leaves the queue, and if tokens have been
    /// taken for it, they are given back. At most
    /// [`waiters_max`](RateLimiterBuilder::waiters_max) requests wait.
    ///
    /// A check does not wait, so it may take tokens that a request waits for; the request then waits
    /// for the next ones. Where the buckets are in Redis, the order holds within this process. While
    /// Redis is unavailable, the failure policy decides: under
    /// [`OnFailure::Deny`](crate::OnFailure::Deny) requests wait until it is back.
    ///
    /// # Panics
    ///
    /// In a tokio runtime whose timers are not enabled, if it has to wait.
    #[cfg(feature = "tokio")]
    pub async fn acquire(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, AcquireError> {
        self.wait_for_tokens(key.as_ref(), n, None, Timer::Runtime)
            .await
    }

    /// [`acquire`](RateLimiter::acquire) with a time limit: fails with
    /// [`AcquireError::TimedOut`] if the tokens are not available within that time. If it is
    /// certain beforehand that they will not be, it fails without waiting.
    ///
    /// # Panics
    ///
    /// In a tokio runtime whose timers are not enabled, if it has to wait.
    #[cfg(feature = "tokio")]
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        within: Duration,
    ) -> Result<Decision, AcquireError> {
        self.wait_for_tokens(key.as_ref(), n, Some(within), Timer::Runtime)
            .await
    }

    /// How many requests wait in [`acquire`](RateLimiter::acquire).
    #[cfg(feature = "tokio")]
    pub fn waiting(&self) -> usize {
        self.0.waiters.len()
    }

    /// Reads a bucket without changing it.
    #[inline]
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()), Command::Peek).await
    }

    /// Debits `n` tokens for work that has already happened, into debt if the bucket has fewer.
    ///
    /// If the connection to Redis breaks, the charge is retried and still happens once.
    #[inline]
    pub async fn charge(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()), Command::Charge { n })
            .await
    }

    /// Gives `n` tokens back, never above capacity.
    #[inline]
    pub async fn credit(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()), Command::Credit { n })
            .await
    }

    /// [`charge`](RateLimiter::charge) that happens once per `id`.
    ///
    /// Further calls with the same id return the decision of the first one, whatever their `n`. Ids
    /// are remembered for [`RateLimiterBuilder::once_ttl`].
    #[inline]
    pub async fn charge_once(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        id: &OpId,
    ) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()).once(id), Command::Charge { n })
            .await
    }

    /// [`credit`](RateLimiter::credit) that happens once per `id`.
    ///
    /// Further calls with the same id return the decision of the first one, whatever their `n`. Ids
    /// are remembered for [`RateLimiterBuilder::once_ttl`].
    #[inline]
    pub async fn credit_once(
        &self,
        key: impl AsRef<[u8]>,
        n: u64,
        id: &OpId,
    ) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()).once(id), Command::Credit { n })
            .await
    }

    /// Sets a bucket to a level that is known from elsewhere; negative is debt.
    #[inline]
    pub async fn set_level(&self, key: impl AsRef<[u8]>, level: i64) -> Result<Decision, Error> {
        self.run(&Target::new(key.as_ref()), Command::SetLevel { level })
            .await
    }

    /// Forgets a key: its bucket, its tier and, where there are leases, the tokens that this process
    /// holds for it. The next request starts with a new bucket.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use balde::RateLimiter;
    ///
    /// let limiter = RateLimiter::new("10/min")?;
    /// limiter.check_n("alice", 10).await;
    /// limiter.forget("alice").await?;
    /// assert_eq!(limiter.check("alice").await.remaining(), 9);
    /// # Ok(()) }) }
    /// ```
    ///
    /// Operations that happen once per [`OpId`] are remembered for their time. Other processes that
    /// hold leases of the key return their tokens to the new bucket.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "nothing waits in memory")
    )]
    pub async fn forget(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = BadKey::check(key.as_ref())?;
        match &self.0.store {
            Store::Memory(table, _) => table.forget(key),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.forget(key).await?,
        }
        #[cfg(feature = "tokio")]
        self.0.waiters.bucket_changed(key);
        Ok(())
    }

    fn forget_blocking(&self, key: &[u8]) -> Result<(), Error> {
        let key = BadKey::check(key)?;
        match &self.0.store {
            Store::Memory(table, _) => table.forget(key),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.forget_blocking(key)?,
        }
        #[cfg(feature = "tokio")]
        self.0.waiters.bucket_changed(key);
        Ok(())
    }

    /// Creates a request for one token of `key`, for [`check_all`](crate::check_all) or
    /// [`Hold::take`](crate::Hold::take).
    pub fn request<'a>(&'a self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> TokenRequest<'a> {
        self.request_n(key, 1)
    }

    /// Creates a request for `n` tokens of `key`, for [`check_all`](crate::check_all) or
    /// [`Hold::take`](crate::Hold::take).
    pub fn request_n<'a>(
        &'a self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
        n: u64,
    ) -> TokenRequest<'a> {
        TokenRequest::new(self, key.as_ref(), n)
    }

    /// Counts a request that is refused because it has no usable key:
    /// `rate_limiter_decisions_total{decision="deny",reason="no_key"}`. No bucket is touched.
    ///
    /// The HTTP layers count such requests themselves. Call this where your own code refuses a
    /// request before it has a key.
    pub fn count_no_key(&self) {
        self.0.observer.count_no_key();
    }

    /// Changes which denials are logged; see [`RateLimiterBuilder::denials`].
    pub fn set_denials(&self, denials: Denials) {
        self.0.observer.set_denials(denials);
    }

    /// Replaces the limit of all buckets whose keys have no tier.
    ///
    /// Each bucket keeps its deficit in tokens, within what the new limit allows: a bucket that
    /// held fewer tokens than the capacity shrinks by becomes empty, and does not get those tokens
    /// back if the capacity grows again.
    ///
    /// In Redis a bucket is converted when it is next written, and refills at the old rate until
    /// then. Other processes need the new limit too.
    pub fn set_limit<L>(&self, limit: L) -> Result<(), InvalidLimit>
    where
        L: TryInto<Limit>,
        L::Error: Into<InvalidLimit>,
    {
        let limit = InvalidLimit::check_window(limit.try_into().map_err(Into::into)?)?;
        self.replace_limit(TierId::NONE, limit)
    }

    /// The current limit of keys without a tier.
    pub fn limit(&self) -> Limit {
        match &self.0.store {
            Store::Memory(table, _) => table.limit(),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.buckets().limit(),
        }
    }

    /// The limiter's name.
    pub fn name(&self) -> &str {
        self.0.observer.policy()
    }

    /// Returns whether the buckets are in memory, so that no call waits.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.0.store, Store::Memory(..))
    }

    /// Counters and gauges of the memory store; all zero where the buckets are in Redis.
    pub fn memory_stats(&self) -> MemoryStats {
        match &self.0.store {
            Store::Memory(table, _) => table.stats(),
            #[cfg(feature = "redis")]
            Store::Redis(_) => MemoryStats::default(),
        }
    }

    /// Removes every full bucket from the memory store. Redis removes them by itself.
    ///
    /// A full bucket is equivalent to one that does not exist, so nothing is lost. Calling this is
    /// never necessary: the memory store sweeps a crowded shard before it grows.
    pub fn sweep(&self) {
        match &self.0.store {
            Store::Memory(table, _) => table.sweep(self.now_us()),
            #[cfg(feature = "redis")]
            Store::Redis(_) => {}
        }
    }

    /// Counters and gauges of the limiter's leases; all zero without leases.
    #[cfg(feature = "redis")]
    pub fn lease_stats(&self) -> LeaseStats {
        self.leases()
            .map_or_else(LeaseStats::default, LeaseManager::stats)
    }

    /// Returns all tokens on lease to Redis. Call it before the process ends: tokens that are not
    /// returned are missing until the bucket has refilled.
    #[cfg(feature = "redis")]
    pub async fn release_leases(&self) {
        if let Some(leases) = self.leases() {
            leases.release().await;
        }
    }

    /// Waits until every [`Hold`](crate::Hold) on this limiter that has been settled or dropped is
    /// settled in Redis, or given up. Call it before the process ends, after the last request.
    ///
    /// Returns at once where the buckets are in memory; otherwise at most
    /// [`SETTLE_WITHIN`](crate::SETTLE_WITHIN) after the last hold.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "nothing waits in memory")
    )]
    pub async fn settled(&self) {
        #[cfg(feature = "redis")]
        self.0.settlements.wait().await;
    }

    #[cfg(feature = "redis")]
    fn leases(&self) -> Option<&LeaseManager> {
        self.redis().and_then(RedisLimiter::leases)
    }

    #[cfg(feature = "tokio")]
    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// Who holds tokens of this limiter here; `None` if they are taken instead of held.
    pub(crate) fn holder_id(&self) -> Option<HolderId> {
        match &self.0.store {
            Store::Memory(table, _) => table.has_holds().then_some(0),
            #[cfg(feature = "redis")]
            Store::Redis(redis) => redis.buckets().holder_id(),
        }
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.0.observer
    }

    #[cfg(feature = "redis")]
    pub(crate) fn redis(&self) -> Option<&RedisLimiter> {
        match &self.0.store {
            Store::Memory(..) => None,
            Store::Redis(redis) => Some(redis),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn settlements(&self) -> &Settlements {
        &self.0.settlements
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.0.clock.now_us()
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.name())
            .field("limit", &format_args!("{}", self.limit()))
            .finish_non_exhaustive()
    }
}
