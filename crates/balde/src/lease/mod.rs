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

use self::in_flight::InFlightRequest;
use self::key_lease::{IDLE_US, KeyLease, LeaseDecision};
use crate::decision::Decision;
use crate::failure::{Share, StoreFailure};
use crate::idempotency::OpId;
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
    /// Tokens held now, over all keys.
    pub tokens_out: u64,
    /// The most tokens that this process ever holds of one key.
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
            block_max: this.leases.block_max(&this.buckets.limit()),
            granted_total: this.granted.load(Ordering::Relaxed),
            refused_total: this.refused.load(Ordering::Relaxed),
            requests_total: this.requests.load(Ordering::Relaxed),
            returned_total: this.returned.load(Ordering::Relaxed),
            ..LeaseStats::default()
        };
        for shard in &this.shards {
            let leases = shard.lock();
            stats.keys += leases.len() as u64;
            stats.tokens_out += leases.values().map(KeyLease::tokens).sum::<u64>();
        }
        stats
    }

    /// Decides from the key's lease or a cached refusal, if there is one.
    pub(crate) fn try_take(&self, key: &[u8], n: u64) -> Option<Decision> {
        let now_us = self.0.buckets.now_us();
        let mut leases = self.0.shard(key).lock();
        let lease = leases.get_mut(key)?;
        let decided = lease.take(n, now_us);
        let is_low = lease.is_low(now_us);
        let decision = self.0.count(&decided)?;
        if is_low && decision.is_allowed() {
            self.request(leases, key, 0, now_us);
        }
        Some(decision)
    }

    /// Decides, with a request to Redis if necessary. Returns `None` where leases do not apply.
    pub(crate) async fn take(
        &self,
        key: &[u8],
        n: u64,
        deadline: Instant,
    ) -> Option<Result<Decision, StoreFailure>> {
        // The store refuses what is more than the capacity, and a take of nothing needs no lease.
        if n == 0 || n > self.0.buckets.limit_of(key).capacity() {
            return None;
        }
        loop {
            let request = {
                let now_us = self.0.buckets.now_us();
                let mut leases = self.0.shard(key).lock();
                if !self.0.has_room(&mut leases, key, now_us) {
                    return None;
                }
                let lease = leases.entry(key.into()).or_default();
                let decided = lease.take(n, now_us);
                if let Some(decision) = self.0.count(&decided) {
                    return Some(Ok(decision));
                }
                match &lease.request {
                    Some(request) => Arc::clone(request),
                    None => self.request(leases, key, n, now_us),
                }
            };
            match timeout_at(deadline, request.wait()).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return Some(Err(failure)),
                Err(_) => return Some(Err(StoreFailure::Timeout)),
            }
        }
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
        let tokens = self.take_out_key(key).await;
        if tokens > 0 {
            self.0.give_back(vec![(key.to_vec(), tokens)]).await;
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
        self.0.give_back(held).await;
    }

    /// Requests a block from Redis for a check of `n` tokens. The request runs in its own task: a
    /// caller that is cancelled must not leave the others waiting.
    fn request(
        &self,
        mut leases: MutexGuard<'_, HashMap<Box<[u8]>, KeyLease>>,
        key: &[u8],
        n: u64,
        now_us: u64,
    ) -> Arc<InFlightRequest> {
        let request = Arc::new(InFlightRequest::default());
        let block_max = self.0.leases.block_max(&self.0.buckets.limit_of(key));
        let lease = leases.entry(key.into()).or_default();
        let amount = lease.request_size(n, block_max, now_us);
        if amount == 0 {
            request.end(Ok(()));
            return request;
        }
        lease.request = Some(Arc::clone(&request));
        drop(leases);

        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let (this, key, ended) = (self.clone(), key.to_vec(), Arc::clone(&request));
        let requesting = async move {
            let buckets = &this.0.buckets;
            let command = Command::TakeUpTo { n: amount };
            let result = buckets.run(&key, command, None, buckets.deadline()).await;
            let mut leases = this.0.shard(&key).lock();
            let lease = leases.entry(key.as_slice().into()).or_default();
            if let Ok(decision) = &result {
                lease.add(*decision, buckets.now_us());
            }
            lease.request = None;
            drop(leases);
            ended.end(result.map(|_| ()));
            this.return_idle_leases();
        };
        // A check that waits for the request sees the call in its span. A block that is requested
        // ahead of use belongs to no check.
        let span = if n > 0 { Span::current() } else { Span::none() };
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
                this.give_back(idle).await;
                if this.forget_idle(now_us) == 0 {
                    this.is_returning.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }
}

impl Inner {
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

    fn take_out(&self, mut tokens_of: impl FnMut(&mut KeyLease) -> u64) -> Vec<(Vec<u8>, u64)> {
        let mut out = Vec::new();
        for shard in &self.shards {
            for (key, lease) in shard.lock().iter_mut() {
                let tokens = tokens_of(lease);
                if tokens > 0 {
                    out.push((key.to_vec(), tokens));
                }
            }
        }
        out
    }

    async fn give_back(&self, tokens: Vec<(Vec<u8>, u64)>) {
        for (key, n) in tokens {
            let id = OpId::random();
            let credit = Command::Credit { n };
            let deadline = self.buckets.deadline();
            // Tokens that cannot be returned are lost until the bucket refills, never granted twice.
            let result = self.buckets.run(&key, credit, Some(&id), deadline).await;
            if result.is_ok() {
                self.forget_refusal(&key);
                self.returned.fetch_add(n, Ordering::Relaxed);
            }
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
