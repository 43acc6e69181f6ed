//! Leases: a process takes a block of tokens of a busy key from the shared store ahead of use,
//! and spends it without asking.
//!
//! The tokens are debited when they are taken, so all processes together never grant more than
//! the limit allows, counted from the start. What a lease does change is when: tokens that a
//! process holds may be spent after the bucket has refilled, so within any stretch of time the
//! grants may exceed capacity and refill by what was out on lease at its beginning. That is at
//! most one block per process and key ([`LeaseStats::block_max`]), and not for longer than half a
//! second: what nobody spends goes back.
//!
//! | File | Holds |
//! |--|--|
//! | `holding` | what is held of one key, and when to ask for more |
//! | `flight` | a question that is under way |

mod flight;
mod holding;

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

use self::flight::Flight;
use self::holding::{Holding, SELDOM_US, Said};
use crate::decision::Decision;
use crate::failure::{Share, StoreFailure};
use crate::limiter::RateLimiter;
use crate::once::OpId;
use crate::store::redis::Shared;

const SHARDS: usize = 16;

/// Keys that a limiter holds leases or remembers refusals of, unless told otherwise. Beyond them
/// every check asks the store.
const KEYS_MAX_DEFAULT: usize = 10_000;

/// How leases are taken. See [`RateLimiterBuilder::leases`](crate::RateLimiterBuilder::leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    share: Share,
    keys_max: usize,
}

impl Leases {
    /// At most a tenth of the capacity for each process and key, and 10,000 keys.
    pub const fn new() -> Self {
        Self {
            share: Share::one_in(10),
            keys_max: KEYS_MAX_DEFAULT,
        }
    }

    /// The part of a bucket's capacity that one process may hold. At least one token.
    pub const fn share(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// The most keys to hold leases of.
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

/// What a limiter holds on lease and has saved by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Keys that something is held or remembered of.
    pub keys: u64,
    /// Tokens held now, over all keys.
    pub tokens_out: u64,
    /// The most tokens that are ever held of one key.
    pub block_max: u64,
    /// Checks that were granted from what was held.
    pub granted_total: u64,
    /// Checks that were refused by what was remembered.
    pub refused_total: u64,
    /// Times the store was asked.
    pub asked_total: u64,
    /// Tokens given back unspent.
    pub returned_total: u64,
}

pub(crate) struct Lessee {
    leases: Leases,
    hasher: RandomState,
    shards: [Mutex<HashMap<Box<[u8]>, Holding>>; SHARDS],
    is_returning: AtomicBool,
    granted: AtomicU64,
    refused: AtomicU64,
    asked: AtomicU64,
    returned: AtomicU64,
}

impl Lessee {
    pub(crate) fn new(leases: Leases) -> Self {
        Self {
            leases,
            hasher: RandomState::new(),
            shards: Default::default(),
            is_returning: AtomicBool::new(false),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            returned: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self, limit: &Limit) -> LeaseStats {
        let mut stats = LeaseStats {
            block_max: self.leases.block_max(limit),
            granted_total: self.granted.load(Ordering::Relaxed),
            refused_total: self.refused.load(Ordering::Relaxed),
            asked_total: self.asked.load(Ordering::Relaxed),
            returned_total: self.returned.load(Ordering::Relaxed),
            ..LeaseStats::default()
        };
        for shard in &self.shards {
            let holdings = shard.lock();
            stats.keys += holdings.len() as u64;
            stats.tokens_out += holdings.values().map(Holding::tokens).sum::<u64>();
        }
        stats
    }

    /// The decision, if it can be made here and now.
    pub(crate) fn try_take(&self, limiter: &RateLimiter, key: &[u8], n: u64) -> Option<Decision> {
        let now_us = limiter.now_us();
        let mut holdings = self.shard(key).lock();
        let holding = holdings.get_mut(key)?;
        let said = holding.take(n, now_us);
        let is_low = holding.is_low(now_us);
        let decision = self.said(&said)?;
        if is_low && decision.is_allowed() {
            self.request(limiter, holdings, key, 0, now_us);
        }
        Some(decision)
    }

    /// The decision, by asking if need be. Nothing when leases are of no help to this key.
    pub(crate) async fn take(
        &self,
        limiter: &RateLimiter,
        key: &[u8],
        n: u64,
        deadline: Instant,
    ) -> Option<Result<Decision, StoreFailure>> {
        // More than a bucket holds is for the store to refuse, and nothing costs nothing.
        if n == 0 || n > limiter.limit().capacity() {
            return None;
        }
        loop {
            let flight = {
                let now_us = limiter.now_us();
                let mut holdings = self.shard(key).lock();
                if !self.has_room(&mut holdings, key, now_us) {
                    return None;
                }
                let holding = holdings.entry(key.into()).or_default();
                let said = holding.take(n, now_us);
                if let Some(decision) = self.said(&said) {
                    return Some(Ok(decision));
                }
                match &holding.flight {
                    Some(flight) => Arc::clone(flight),
                    None => self.request(limiter, holdings, key, n, now_us),
                }
            };
            match timeout_at(deadline, flight.landed()).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return Some(Err(failure)),
                Err(_) => return Some(Err(StoreFailure::Timeout)),
            }
        }
    }

    /// Somebody changed the bucket by another command.
    pub(crate) fn forget_refusal(&self, key: &[u8]) {
        if let Some(holding) = self.shard(key).lock().get_mut(key) {
            holding.forget_refusal();
        }
    }

    /// Everybody's bucket changed.
    pub(crate) fn forget_refusals(&self) {
        for shard in &self.shards {
            for holding in shard.lock().values_mut() {
                holding.forget_refusal();
            }
        }
    }

    /// Gives everything back that is held.
    pub(crate) async fn release(&self, shared: &Shared) {
        let held = self.take_out(Holding::take_all);
        self.give_back(shared, held).await;
    }

    fn said(&self, said: &Said) -> Option<Decision> {
        match said {
            Said::Granted(decision) => {
                self.granted.fetch_add(1, Ordering::Relaxed);
                Some(Decision::of(*decision))
            }
            Said::Refused { decision, wait_us } => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Some(Decision::of_memory(*decision, *wait_us))
            }
            Said::Nothing => None,
        }
    }

    /// Asks the store for somebody who wants `n`. It runs by itself: a caller that goes away must
    /// not leave the others waiting.
    fn request(
        &self,
        limiter: &RateLimiter,
        mut holdings: MutexGuard<'_, HashMap<Box<[u8]>, Holding>>,
        key: &[u8],
        n: u64,
        now_us: u64,
    ) -> Arc<Flight> {
        let flight = Arc::new(Flight::default());
        let most = self.leases.block_max(&limiter.limit());
        let holding = holdings.entry(key.into()).or_default();
        let amount = holding.ask_for(n, most, now_us);
        let Some(shared) = limiter.shared().filter(|_| amount > 0) else {
            flight.land(Ok(()));
            return flight;
        };
        holding.flight = Some(Arc::clone(&flight));
        drop(holdings);

        self.asked.fetch_add(1, Ordering::Relaxed);
        let spawner = shared.store().handle().clone();
        let (limiter, key, landing) = (limiter.clone(), key.to_vec(), Arc::clone(&flight));
        let asking = async move {
            let Some((shared, lessee)) = of(&limiter) else {
                return landing.land(Err(StoreFailure::Disconnected));
            };
            let command = Command::TakeUpTo { n: amount };
            let outcome = shared.run(&key, command, None, shared.deadline()).await;
            let mut holdings = lessee.shard(&key).lock();
            let holding = holdings.entry(key.as_slice().into()).or_default();
            if let Ok(decision) = &outcome {
                holding.landed(*decision, limiter.now_us());
            }
            holding.flight = None;
            drop(holdings);
            landing.land(outcome.map(|_| ()));
            lessee.see_to_returns(&limiter);
        };
        // Whoever waits for the answer sees the call as a part of the check; a block that is taken
        // ahead is nobody's.
        let span = if n > 0 { Span::current() } else { Span::none() };
        spawner.spawn(asking.instrument(span));
        flight
    }

    /// Starts giving back what nobody spends, unless somebody does so already. It ends when there
    /// is nothing left to give back, or the limiter is gone.
    fn see_to_returns(&self, limiter: &RateLimiter) {
        let Some(shared) = limiter.shared() else {
            return;
        };
        if self.is_returning.swap(true, Ordering::AcqRel) {
            return;
        }
        let weak = limiter.downgrade();
        shared.store().handle().spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_micros(SELDOM_US / 2)).await;
                let Some(limiter) = weak.upgrade() else {
                    return;
                };
                let Some((shared, lessee)) = of(&limiter) else {
                    return;
                };
                let now_us = limiter.now_us();
                let idle = lessee.take_out(|holding| holding.take_idle(now_us));
                lessee.give_back(shared, idle).await;
                if lessee.forget_idle(now_us) == 0 {
                    lessee.is_returning.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    fn take_out(&self, mut rule: impl FnMut(&mut Holding) -> u64) -> Vec<(Vec<u8>, u64)> {
        let mut out = Vec::new();
        for shard in &self.shards {
            for (key, holding) in shard.lock().iter_mut() {
                let tokens = rule(holding);
                if tokens > 0 {
                    out.push((key.to_vec(), tokens));
                }
            }
        }
        out
    }

    async fn give_back(&self, shared: &Shared, tokens: Vec<(Vec<u8>, u64)>) {
        for (key, n) in tokens {
            let id = OpId::random();
            let credit = Command::Credit { n };
            let deadline = shared.deadline();
            // What cannot be given back is lost to everybody, never granted twice.
            if shared.run(&key, credit, Some(&id), deadline).await.is_ok() {
                self.returned.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// Drops what holds nothing, and says how many are left.
    fn forget_idle(&self, now_us: u64) -> usize {
        let forget = |shard: &Mutex<HashMap<Box<[u8]>, Holding>>| {
            let mut holdings = shard.lock();
            holdings.retain(|_, holding| !holding.is_idle(now_us));
            holdings.len()
        };
        self.shards.iter().map(forget).sum()
    }

    fn has_room(
        &self,
        holdings: &mut HashMap<Box<[u8]>, Holding>,
        key: &[u8],
        now_us: u64,
    ) -> bool {
        let most = self.leases.keys_max.div_ceil(SHARDS);
        if holdings.len() < most || holdings.contains_key(key) {
            return true;
        }
        holdings.retain(|_, holding| !holding.is_empty(now_us));
        holdings.len() < most
    }

    fn shard(&self, key: &[u8]) -> &Mutex<HashMap<Box<[u8]>, Holding>> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

/// The store and the leases of a limiter that has both.
fn of(limiter: &RateLimiter) -> Option<(&Shared, &Lessee)> {
    let shared = limiter.shared()?;
    shared.lessee().map(|lessee| (shared, lessee))
}
