//! Leases: a process takes a block of tokens of a busy key from Redis ahead of use, and spends it
//! without a call to Redis.
//!
//! Redis debits the tokens when they are taken, so all processes together never grant more than the
//! limit allows, counted from the start. A lease does change when tokens are spent: those that a
//! process holds may be spent after the bucket has refilled, so within any interval the grants may
//! exceed capacity and refill by the tokens that were on lease at its beginning. That is at most one
//! block per process and key ([`LeaseStats::block_max`]), and for at most half a second: idle leases
//! are returned.
//!
//! One request per key is in flight. It asks for what all waiting callers need and for a block, so a
//! limit whose block is a single token is served as fast as by plain checks. A refusal is cached
//! until the bucket has a token, or somewhat longer while nothing can be lost by that. Where a bucket
//! refills faster than requests come back, checks are plain.
//!
//! | File | Holds |
//! |--|--|
//! | `key_lease` | the lease of one key, and when it needs more tokens |
//! | `in_flight` | a request for a block that is in flight |

mod in_flight;
mod key_lease;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use balde_core::{Command, Limit};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use self::in_flight::{InFlightRequest, Supply};
use self::key_lease::{IDLE_US, KeyLease, LeaseDecision};
use crate::decision::Decision;
use crate::failure::{Share, StoreFailure};
use crate::idempotency::OpId;
use crate::store::TierId;
use crate::store::redis::RedisBuckets;

const SHARDS: usize = 16;

/// The default of [`Leases::keys_max`]. Checks of further keys go to Redis.
const KEYS_MAX_DEFAULT: usize = 10_000;

/// How many tokens a process may lease. See
/// [`RateLimiterBuilder::leases`](crate::RateLimiterBuilder::leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    share: Share,
    keys_max: usize,
}

impl Leases {
    /// Leases at most a tenth of the capacity for each process and key, of at most 10,000 keys.
    pub const fn new() -> Self {
        Self {
            share: Share::one_in(10),
            keys_max: KEYS_MAX_DEFAULT,
        }
    }

    /// Sets the share of a bucket's capacity that one process may hold: at least one token.
    pub const fn share(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// Sets the most keys to hold leases of.
    pub const fn keys_max(self, keys_max: usize) -> Self {
        Self { keys_max, ..self }
    }

    pub(crate) const fn is_valid(&self) -> bool {
        self.share.is_valid()
    }

    fn block_max(&self, limit: &Limit) -> u64 {
        self.share.of_tokens(limit.capacity())
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self::new()
    }
}

/// Counters and gauges of a limiter's leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Keys with a lease or a cached refusal.
    pub keys: u64,
    /// Tokens held ahead of use now, over all keys.
    pub tokens_out: u64,
    /// The most tokens of one key that this process ever holds ahead of use. Where there are tiers, a
    /// key of the tier with the largest capacity may have that many, others fewer.
    pub block_max: u64,
    /// Checks granted from a lease.
    pub granted_total: u64,
    /// Checks refused by a cached refusal.
    pub refused_total: u64,
    /// Requests for tokens that were sent to Redis.
    pub requests_total: u64,
    /// Tokens returned unspent.
    pub returned_total: u64,
}

/// All leases of one limiter. Clones share them.
#[derive(Clone)]
pub(crate) struct LeaseManager(Arc<Inner>);

struct Inner {
    buckets: Arc<RedisBuckets>,
    leases: Leases,
    hasher: RandomState,
    shards: [Mutex<HashMap<Box<[u8]>, KeyLease>>; SHARDS],
    is_returning: AtomicBool,
    granted: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
    returned: AtomicU64,
}

impl LeaseManager {
    pub(crate) fn new(buckets: Arc<RedisBuckets>, leases: Leases) -> Self {
        Self(Arc::new(Inner {
            buckets,
            leases,
            hasher: RandomState::new(),
            shards: Default::default(),
            is_returning: AtomicBool::new(false),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        }))
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let this = &*self.0;
        let mut stats = LeaseStats {
            block_max: this.block_max_of_all(),
            granted_total: this.granted.load(Ordering::Relaxed),
            refused_total: this.refused.load(Ordering::Relaxed),
            requests_total: this.requests.load(Ordering::Relaxed),
            returned_total: this.returned.load(Ordering::Relaxed),
            ..LeaseStats::default()
        };
        for shard in &this.shards {
            let leases = shard.lock();
            stats.keys += leases.len() as u64;
            stats.tokens_out += leases.values().map(KeyLease::tokens_ahead).sum::<u64>();
        }
        stats
    }

    /// Decides from the key's lease or a cached refusal, if there is one.
    pub(crate) fn try_take(&self, key: &[u8], tier: Option<TierId>, n: u64) -> Option<Decision> {
        let now_us = self.0.buckets.now_us();
        let mut leases = self.0.shard(key).lock();
        let lease = leases.get_mut(key).filter(|lease| lease.tier == tier)?;
        let decided = lease.take(n, now_us);
        let is_low = lease.is_low(now_us);
        let decision = self.0.count(&decided)?;
        if is_low && decision.is_allowed() {
            self.request(leases, key, tier, now_us);
        }
        Some(decision)
    }

    /// Decides, with a request to Redis if necessary. Returns `None` where leases do not apply.
    ///
    /// `tier` is the tier of the key if the caller knows it.
    pub(crate) async fn take(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        n: u64,
        deadline: Instant,
    ) -> Option<Result<Decision, StoreFailure>> {
        let limit = self.0.limit_of(key, tier);
        // The store refuses what is more than the capacity, and a take of nothing needs no lease.
        if n == 0 || n > limit.capacity() {
            return None;
        }
        self.enter_tier(key, tier).await;
        if n > self.0.leases.block_max(&limit) {
            return self.take_whole(key, tier, n, deadline).await;
        }
        let mut waiter = Waiter {
            manager: self,
            key,
            tier,
            n,
            is_waiting: false,
        };
        let mut supply = Supply::Enough;
        loop {
            // A request that was sent before this caller came does not speak for it.
            let is_late;
            let request = {
                let now_us = self.0.buckets.now_us();
                let mut leases = self.0.shard(key).lock();
                if !self.0.has_room(&mut leases, key, now_us) {
                    return None;
                }
                let lease = lease_of(&mut leases, key, tier);
                let decided = match supply {
                    Supply::Enough => lease.take(n, now_us),
                    Supply::Short => lease.take_after_short(n, now_us),
                };
                if let Some(decision) = self.0.count(&decided) {
                    if std::mem::take(&mut waiter.is_waiting) {
                        lease.end_wait(n);
                    }
                    return Some(Ok(decision));
                }
                if lease.is_outpaced_by(&limit) {
                    return None;
                }
                is_late = !waiter.is_waiting && lease.request.is_some();
                if !waiter.is_waiting {
                    waiter.is_waiting = true;
                    lease.begin_wait(n);
                }
                match &lease.request {
                    Some(request) => Arc::clone(request),
                    None => self.request(leases, key, tier, now_us),
                }
            };
            match timeout_at(deadline, request.wait()).await {
                Ok(Ok(_)) if is_late => {}
                Ok(Ok(brought)) => supply = brought,
                Ok(Err(failure)) => return Some(Err(failure)),
                Err(_) => return Some(Err(StoreFailure::Timeout)),
            }
        }
    }

    /// Takes more tokens than a lease may hold: the store gives all of them or none. Its refusal is
    /// cached.
    async fn take_whole(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        n: u64,
        deadline: Instant,
    ) -> Option<Result<Decision, StoreFailure>> {
        let this = &*self.0;
        let held = {
            let now_us = this.buckets.now_us();
            let mut leases = this.shard(key).lock();
            match leases.get_mut(key) {
                Some(lease) => {
                    let decided = lease.take(n, now_us);
                    if let Some(decision) = this.count(&decided) {
                        return Some(Ok(decision));
                    }
                    // The bucket must have all that there is, or it might never have enough.
                    if lease.is_in_use() {
                        0
                    } else {
                        lease.take_all()
                    }
                }
                None => 0,
            }
        };
        if held > 0 {
            this.give_back(key, tier, held).await;
        }
        this.requests.fetch_add(1, Ordering::Relaxed);
        let asked_us = this.buckets.now_us();
        let taking = this.run(key, tier, Command::Take { n }, None, deadline);
        let decision = match taking.await {
            Ok(decision) => decision,
            Err(failure) => return Some(Err(failure)),
        };
        if !decision.is_allowed() {
            let now_us = this.buckets.now_us();
            let mut leases = this.shard(key).lock();
            if this.has_room(&mut leases, key, now_us) {
                let lease = lease_of(&mut leases, key, tier);
                lease.add_refusal(decision, n, asked_us, now_us);
                drop(leases);
                self.return_idle_leases();
            }
        }
        Some(Ok(Decision::of(decision)))
    }

    /// Drops the cached refusal of a key, because a command changed its bucket.
    pub(crate) fn forget_refusal(&self, key: &[u8]) {
        self.0.forget_refusal(key);
    }

    /// Drops all cached refusals, because the limit changed.
    pub(crate) fn forget_refusals(&self) {
        for shard in &self.0.shards {
            for lease in shard.lock().values_mut() {
                lease.forget_refusal();
            }
        }
    }

    /// Returns the tokens of one key to Redis, because its limit changed.
    pub(crate) async fn release_key(&self, key: &[u8]) {
        let tier = {
            let leases = self.0.shard(key).lock();
            leases.get(key).and_then(|lease| lease.tier)
        };
        let tokens = self.take_out_key(key).await;
        if tokens > 0 {
            self.0.give_back(key, tier, tokens).await;
        }
    }

    /// Returns the tokens of a key that was in another tier, because they belong to another limit.
    async fn enter_tier(&self, key: &[u8], tier: Option<TierId>) {
        let is_other = |lease: &KeyLease| lease.tier != tier;
        let has_moved = self.0.shard(key).lock().get(key).is_some_and(is_other);
        if has_moved {
            self.release_key(key).await;
            if let Some(lease) = self.0.shard(key).lock().get_mut(key) {
                lease.tier = tier;
            }
        }
    }

    /// Takes back `n` tokens that were granted from the lease of a key and not used.
    pub(crate) async fn put_back(&self, key: &[u8], tier: Option<TierId>, n: u64) {
        let surplus = {
            let mut leases = self.0.shard(key).lock();
            match leases.get_mut(key).filter(|lease| lease.tier == tier) {
                Some(lease) => {
                    lease.put_back(n);
                    lease.take_surplus(self.0.block_max(key, tier))
                }
                None => n,
            }
        };
        if surplus > 0 {
            self.0.give_back(key, tier, surplus).await;
        }
    }

    /// Drops the tokens of a key whose bucket is about to be removed.
    pub(crate) async fn forget_key(&self, key: &[u8]) {
        self.take_out_key(key).await;
    }

    /// Takes the tokens of a key out of its lease, also those of a request that is in flight.
    async fn take_out_key(&self, key: &[u8]) -> u64 {
        let in_flight = match self.0.shard(key).lock().get(key) {
            None => return 0,
            Some(lease) => lease.request.clone(),
        };
        if let Some(request) = in_flight {
            // If it fails, there is nothing to take out.
            let _failed = request.wait().await;
        }
        match self.0.shard(key).lock().get_mut(key) {
            None => 0,
            Some(lease) => {
                lease.forget_refusal();
                lease.take_all()
            }
        }
    }

    /// Returns all tokens on lease to Redis.
    pub(crate) async fn release(&self) {
        let held = self.0.take_out(KeyLease::take_all);
        self.0.give_back_all(held).await;
    }

    /// Requests tokens from Redis for the callers that wait, and a block. The request runs in its own
    /// task: a caller that is cancelled must not leave the others waiting.
    fn request(
        &self,
        mut leases: MutexGuard<'_, HashMap<Box<[u8]>, KeyLease>>,
        key: &[u8],
        tier: Option<TierId>,
        now_us: u64,
    ) -> Arc<InFlightRequest> {
        let request = Arc::new(InFlightRequest::default());
        let limit = self.0.limit_of(key, tier);
        let lease = lease_of(&mut leases, key, tier);
        // A check that waits for the request sees the call in its span. A block that is requested
        // ahead of use belongs to no check.
        let span = if lease.is_in_use() {
            Span::current()
        } else {
            Span::none()
        };
        let wanted = lease.request_size(self.0.leases.block_max(&limit), now_us);
        let amount = wanted.min(limit.capacity());
        if amount == 0 {
            request.end(Ok(Supply::Enough));
            return request;
        }
        lease.request = Some(Arc::clone(&request));
        drop(leases);

        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let (this, key, ended) = (self.clone(), key.to_vec(), Arc::clone(&request));
        let requesting = async move {
            let buckets = &this.0.buckets;
            let (command, deadline) = (Command::TakeUpTo { n: amount }, buckets.deadline());
            let result = this.0.run(&key, tier, command, None, deadline).await;
            let (supply, surplus) = {
                let mut leases = this.0.shard(&key).lock();
                let lease = lease_of(&mut leases, &key, tier);
                let supply = result.map(|decision| lease.add(decision, buckets.now_us()));
                lease.request = None;
                (supply, lease.take_surplus(this.0.block_max(&key, tier)))
            };
            ended.end(supply);
            this.return_idle_leases();
            if surplus > 0 {
                this.0.give_back(&key, tier, surplus).await;
            }
        };
        let runtime = self.0.buckets.store().handle();
        runtime.spawn(requesting.instrument(span));
        request
    }

    /// Starts the task that returns idle leases, unless it runs. It ends when there are no leases
    /// left, or the limiter is dropped.
    fn return_idle_leases(&self) {
        if self.0.is_returning.swap(true, Ordering::AcqRel) {
            return;
        }
        let weak = Arc::downgrade(&self.0);
        self.0.buckets.store().handle().spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_micros(IDLE_US / 2)).await;
                let Some(this) = weak.upgrade() else {
                    return;
                };
                let now_us = this.buckets.now_us();
                let idle = this.take_out(|lease| lease.take_idle(now_us));
                this.give_back_all(idle).await;
                if this.forget_idle(now_us) == 0 {
                    this.is_returning.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }
}

/// Tokens that were taken out of the lease of a key, which is in this tier.
type TakenOut = (Vec<u8>, Option<TierId>, u64);

/// The lease of a key, which is created in this tier if there is none.
fn lease_of<'a>(
    leases: &'a mut HashMap<Box<[u8]>, KeyLease>,
    key: &[u8],
    tier: Option<TierId>,
) -> &'a mut KeyLease {
    leases
        .entry(key.into())
        .or_insert_with(|| KeyLease::in_tier(tier))
}

/// A caller that waits for tokens of a key. When it ends without them, because it timed out or was
/// cancelled, those that were requested for it are returned.
struct Waiter<'a> {
    manager: &'a LeaseManager,
    key: &'a [u8],
    tier: Option<TierId>,
    n: u64,
    is_waiting: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.is_waiting {
            return;
        }
        let inner = &self.manager.0;
        let (tier, block_max) = (self.tier, inner.block_max(self.key, self.tier));
        let mut leases = inner.shard(self.key).lock();
        let Some(lease) = leases.get_mut(self.key) else {
            return;
        };
        lease.end_wait(self.n);
        let surplus = lease.take_surplus(block_max);
        drop(leases);
        if surplus > 0 {
            let (this, key) = (Arc::clone(inner), self.key.to_vec());
            let giving_back = async move { this.give_back(&key, tier, surplus).await };
            inner.buckets.store().handle().spawn(giving_back);
        }
    }
}

impl Inner {
    fn limit_of(&self, key: &[u8], tier: Option<TierId>) -> Limit {
        tier.map_or_else(
            || self.buckets.limit_of(key),
            |tier| self.buckets.tier_limit(tier),
        )
    }

    fn block_max(&self, key: &[u8], tier: Option<TierId>) -> u64 {
        self.leases.block_max(&self.limit_of(key, tier))
    }

    async fn run(
        &self,
        key: &[u8],
        tier: Option<TierId>,
        command: Command,
        id: Option<&OpId>,
        deadline: Instant,
    ) -> Result<balde_core::Decision, StoreFailure> {
        let (buckets, holder) = (&self.buckets, self.buckets.holder_id());
        buckets
            .run_as(key, tier, command, id, holder, deadline)
            .await
    }

    /// The largest block that any tier allows. Keys that hold tokens are not asked for their tiers, because the
    /// function given to [`tier_of`](crate::RateLimiterBuilder::tier_of) would run under a lock.
    fn block_max_of_all(&self) -> u64 {
        let limits = self.buckets.limits();
        let blocks = limits.iter().map(|limit| self.leases.block_max(limit));
        blocks.max().unwrap_or_default()
    }

    fn count(&self, decided: &LeaseDecision) -> Option<Decision> {
        match decided {
            LeaseDecision::Granted(decision) => {
                self.granted.fetch_add(1, Ordering::Relaxed);
                Some(Decision::of(*decision))
            }
            LeaseDecision::Refused { decision, wait_us } => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Some(Decision::of_cached(*decision, *wait_us))
            }
            LeaseDecision::Unknown => None,
        }
    }

    fn forget_refusal(&self, key: &[u8]) {
        if let Some(lease) = self.shard(key).lock().get_mut(key) {
            lease.forget_refusal();
        }
    }

    fn take_out(&self, mut tokens_of: impl FnMut(&mut KeyLease) -> u64) -> Vec<TakenOut> {
        let mut out = Vec::new();
        for shard in &self.shards {
            for (key, lease) in shard.lock().iter_mut() {
                let tokens = tokens_of(lease);
                if tokens > 0 {
                    out.push((key.to_vec(), lease.tier, tokens));
                }
            }
        }
        out
    }

    async fn give_back_all(&self, tokens: Vec<TakenOut>) {
        for (key, tier, n) in tokens {
            self.give_back(&key, tier, n).await;
        }
    }

    async fn give_back(&self, key: &[u8], tier: Option<TierId>, n: u64) {
        let id = OpId::random();
        let (credit, deadline) = (Command::Credit { n }, self.buckets.deadline());
        // Tokens that cannot be returned are lost until the bucket refills, never granted twice.
        let result = self.run(key, tier, credit, Some(&id), deadline).await;
        if result.is_ok() {
            self.forget_refusal(key);
            self.returned.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Drops leases that hold nothing, and returns how many are left.
    fn forget_idle(&self, now_us: u64) -> usize {
        let forget = |shard: &Mutex<HashMap<Box<[u8]>, KeyLease>>| {
            let mut leases = shard.lock();
            leases.retain(|_, lease| !lease.is_idle(now_us));
            leases.len()
        };
        self.shards.iter().map(forget).sum()
    }

    fn has_room(&self, leases: &mut HashMap<Box<[u8]>, KeyLease>, key: &[u8], now_us: u64) -> bool {
        let keys_max = self.leases.keys_max.div_ceil(SHARDS);
        if leases.len() < keys_max || leases.contains_key(key) {
            return true;
        }
        leases.retain(|_, lease| !lease.is_empty(now_us));
        leases.len() < keys_max
    }

    fn shard(&self, key: &[u8]) -> &Mutex<HashMap<Box<[u8]>, KeyLease>> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}
