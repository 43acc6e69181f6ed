//! Decisions over several buckets that are not all in memory.
//!
//! Requests that one store can decide in one step form a group. Groups are decided in order; when
//! one refuses, the tokens of those before it are given back, and those after it are peeked at.

use balde_core::Command;
use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, timeout_at};
use tracing::Instrument;

use crate::decision::Decision;
use crate::failure::StoreFailure;
use crate::key::BadKey;
use crate::limiter::{HolderId, RateLimiter, RedisLimiter, Store, TokenRequest, wait};
use crate::store::memory::{self, MemoryStep, Table, TierId};
use crate::store::redis::{self, RedisStep, RedisStore};

/// A [`TokenRequest`] that borrows nothing.
struct OwnedRequest {
    limiter: RateLimiter,
    key: Vec<u8>,
    tier: Option<TierId>,
    command: Command,
    holder: Option<HolderId>,
}

impl OwnedRequest {
    fn step(&self, command: Command) -> Option<RedisStep<'_>> {
        self.limiter.redis().map(|redis| RedisStep {
            buckets: redis.buckets(),
            key: &self.key,
            tier: self.tier,
            command,
            holder: self.holder,
        })
    }

    /// Runs a command on a bucket in memory.
    fn run_in_memory(&self, table: &Table, command: Command) -> balde_core::Decision {
        memory::run(&self.memory_step(table, command))
    }

    fn memory_step<'a>(&'a self, table: &'a Table, command: Command) -> MemoryStep<'a> {
        let now_us = self.limiter.now_us();
        let step = self.limiter.memory_step(table, &self.key, command, now_us);
        let tier = self.tier.or(step.tier);
        MemoryStep { tier, ..step }
    }

    fn is_same_bucket(&self, other: &Self) -> bool {
        std::ptr::eq(self.limiter.store(), other.limiter.store()) && self.key == other.key
    }

    fn of_failure(&self, failure: StoreFailure, command: Command) -> Decision {
        match self.limiter.redis() {
            Some(redis) => {
                let buckets = redis.buckets();
                let tier = self.tier.unwrap_or_else(|| buckets.tier(&self.key));
                buckets.fall_back_in(&self.key, tier, command, failure)
            }
            None => Decision::of_denial(&self.limiter.limit(), failure, Duration::ZERO, 0),
        }
    }
}

pub(super) async fn decide(requests: &[TokenRequest<'_>]) -> Vec<Decision> {
    if Handle::try_current().is_ok() {
        return Box::pin(decide_owned(owned(requests))).await;
    }
    let Some(store) = slowest_store(requests) else {
        return Vec::new();
    };
    let deciding = decide_owned(owned(requests));
    let task = store.handle().spawn(deciding.in_current_span());
    match task.await {
        Ok(decisions) => decisions,
        Err(_) => failed(requests, StoreFailure::Disconnected),
    }
}

pub(super) fn decide_blocking(requests: &[TokenRequest<'_>]) -> Vec<Decision> {
    let Some(store) = slowest_store(requests) else {
        return Vec::new();
    };
    wait(store, decide_owned(owned(requests)))
        .unwrap_or_else(|| failed(requests, StoreFailure::Timeout))
}

fn owned(requests: &[TokenRequest<'_>]) -> Vec<OwnedRequest> {
    requests
        .iter()
        .map(|request| OwnedRequest {
            limiter: request.limiter.clone(),
            key: request.key.to_vec(),
            tier: request.tier_id(),
            command: request.command(),
            holder: request.holder,
        })
        .collect()
}

fn slowest_store<'a>(requests: &[TokenRequest<'a>]) -> Option<&'a RedisStore> {
    requests
        .iter()
        .filter_map(|request| request.limiter.redis().map(RedisLimiter::store))
        .max_by_key(|store| store.timeout())
}

/// No store was reached, and nothing was taken.
pub(super) fn failed(requests: &[TokenRequest<'_>], failure: StoreFailure) -> Vec<Decision> {
    all_failed(&owned(requests), failure)
}

fn all_failed(requests: &[OwnedRequest], failure: StoreFailure) -> Vec<Decision> {
    requests
        .iter()
        .map(|request| request.of_failure(failure, request.command))
        .collect()
}

async fn decide_owned(requests: Vec<OwnedRequest>) -> Vec<Decision> {
    // The whole decision has the timeout of one call to the slowest store.
    let timeouts = requests
        .iter()
        .filter_map(|request| request.limiter.redis());
    let timeout = timeouts.map(|redis| redis.store().timeout()).max();
    let deadline = Instant::now() + timeout.unwrap_or_default();

    let mut decisions: Vec<Option<Decision>> = vec![None; requests.len()];
    let mut granted: Vec<Vec<usize>> = Vec::new();
    let mut is_refused = false;
    for (index, request) in requests.iter().enumerate() {
        if let Err(bad) = BadKey::check(&request.key) {
            let limit = request.limiter.limit();
            decisions[index] = Some(Decision::of_bad_key(&limit, bad, 0));
            is_refused = true;
        }
    }
    for group in groups(&requests) {
        if is_refused {
            for index in group {
                if decisions[index].is_none() {
                    decisions[index] = Some(peek(&requests[index], deadline).await);
                }
            }
            continue;
        }
        let members: Vec<_> = group.iter().map(|index| &requests[*index]).collect();
        let decided = take(&members, deadline).await;
        is_refused = !decided.iter().all(Decision::is_allowed);
        for (index, decision) in group.iter().zip(decided) {
            decisions[*index] = Some(decision);
        }
        if is_refused {
            for group in granted.drain(..) {
                give_back(&requests, &group, &mut decisions, deadline).await;
            }
        } else {
            granted.push(group);
        }
    }
    decisions.into_iter().flatten().collect()
}

/// Indices of requests, grouped by what can be decided in one step, in their order.
fn groups(requests: &[OwnedRequest]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let step = request.step(Command::Peek);
        let fits = |group: &&mut Vec<usize>| match (&step, requests[group[0]].step(Command::Peek)) {
            (None, None) => true,
            (Some(step), Some(first)) => step.is_reachable_with(&first),
            _ => false,
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// Takes for a whole group, or for none of it.
async fn take(group: &[&OwnedRequest], deadline: Instant) -> Vec<Decision> {
    let steps: Option<Vec<_>> = group
        .iter()
        .map(|request| request.step(request.command))
        .collect();
    let Some(steps) = steps else {
        return memory::run_all(&memory_steps(group))
            .into_iter()
            .map(Decision::of)
            .collect();
    };
    match redis::run_all(&steps, deadline).await {
        Ok(decided) if decided.iter().all(balde_core::Decision::is_allowed) => {
            decided.into_iter().map(Decision::of).collect()
        }
        Ok(decided) => {
            // The script returns what would have happened; callers get the bucket as it is.
            let untouched = |index: usize| {
                let first = group
                    .iter()
                    .position(|request| request.is_same_bucket(group[index]));
                let decision = Decision::of(decided[index]);
                decision.as_peek(&decided[first.unwrap_or(index)])
            };
            let shown = |(index, decision): (usize, &balde_core::Decision)| {
                if decision.is_allowed() {
                    untouched(index)
                } else {
                    Decision::of(*decision)
                }
            };
            decided.iter().enumerate().map(shown).collect()
        }
        Err(failure) => fall_back_together(group, failure),
    }
}

/// Decides each request by its failure policy. If one is denied, local buckets get their tokens back.
fn fall_back_together(group: &[&OwnedRequest], failure: StoreFailure) -> Vec<Decision> {
    let mut decisions: Vec<_> = group
        .iter()
        .map(|request| request.of_failure(failure, request.command))
        .collect();
    if !decisions.iter().all(Decision::is_allowed) {
        for (request, decision) in group.iter().zip(&mut decisions) {
            if decision.is_allowed() {
                return_local(request, decision);
            }
        }
    }
    decisions
}

fn return_local(request: &OwnedRequest, decision: &mut Decision) {
    if let Some(redis) = request.limiter.redis() {
        let n = decision.moved();
        redis.buckets().credit_local(&request.key, request.tier, n);
    }
    *decision = decision.as_peek(decision.core());
}

/// Gives the tokens of a group back, as far as that is possible before the deadline.
async fn give_back(
    requests: &[OwnedRequest],
    group: &[usize],
    decisions: &mut [Option<Decision>],
    deadline: Instant,
) {
    let mut credits = Vec::new();
    for index in group {
        let request = &requests[*index];
        let Some(decision) = &mut decisions[*index] else {
            continue;
        };
        if decision.is_fallback() {
            return_local(request, decision);
            continue;
        }
        let command = redis::undoing(decision.core());
        match request.limiter.store() {
            Store::Memory(table, _) => {
                request.run_in_memory(table, command);
            }
            Store::Redis(_) => credits.extend(request.step(command)),
        }
        // Of several requests for one bucket, the first saw it unchanged.
        let same = |first: &&usize| requests[**first].is_same_bucket(request);
        let first = group.iter().find(same).copied().unwrap_or(*index);
        let before = decisions[first].map(|first| *first.core());
        decisions[*index] = decisions[*index]
            .zip(before)
            .map(|(decision, before)| decision.as_peek(&before));
    }
    if let Some(refund) = redis::refund(&credits) {
        // The task continues after the deadline.
        let task = tokio::spawn(refund.run());
        let _late = timeout_at(deadline, task).await;
    }
}

/// Peeks at a bucket; the decision is a refusal if it would have refused too.
async fn peek(request: &OwnedRequest, deadline: Instant) -> Decision {
    let found = match request.limiter.store() {
        Store::Memory(table, _) => request.run_in_memory(table, Command::Peek),
        Store::Redis(redis) => {
            let (buckets, tier) = (redis.buckets(), request.tier);
            let peeking = buckets.run_as(&request.key, tier, Command::Peek, None, None, deadline);
            match peeking.await {
                Ok(found) => found,
                Err(failure) => return request.of_failure(failure, Command::Peek),
            }
        }
    };
    let taken = found.then(request.command);
    Decision::of(if taken.is_allowed() { found } else { taken })
}

fn memory_steps<'a>(group: &[&'a OwnedRequest]) -> Vec<MemoryStep<'a>> {
    group
        .iter()
        .filter_map(|request| match request.limiter.store() {
            Store::Memory(table, _) => Some(request.memory_step(table, request.command)),
            Store::Redis(_) => None,
        })
        .collect()
}
