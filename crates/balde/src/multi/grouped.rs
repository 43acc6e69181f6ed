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
use crate::limiter::{OwnedRequest, RedisLimiter, Target, TokenRequest, wait};
use crate::store::memory;
use crate::store::redis::{self, RedisStep, RedisStore};

use super::memory_steps;

impl<'a> TokenRequest<'a> {
    fn step(&self, command: Command) -> Option<RedisStep<'a>> {
        self.limiter.redis().map(|redis| RedisStep {
            buckets: redis.buckets(),
            key: self.key,
            tier: self.tier_id(),
            command,
            holder: self.holder,
        })
    }

    /// The limiter, if it takes the tokens of this request from leases.
    fn leasing(&self) -> Option<&'a RedisLimiter> {
        let redis = self.limiter.redis()?;
        redis.is_leased(self.command()).then_some(redis)
    }

    fn of_failure(&self, failure: StoreFailure, command: Command) -> Decision {
        match self.limiter.redis() {
            Some(redis) => {
                let buckets = redis.buckets();
                let tier = self.tier_id().unwrap_or_else(|| buckets.tier(self.key));
                buckets.fall_back_in(self.key, tier, command, failure)
            }
            None => Decision::of_denial(&self.limiter.limit(), failure, Duration::ZERO, 0),
        }
    }
}

pub(super) async fn decide(requests: &[TokenRequest<'_>]) -> Vec<Decision> {
    if let Some(decision) = decide_leased(requests) {
        return vec![decision];
    }
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
    if let Some(decision) = decide_leased(requests) {
        return vec![decision];
    }
    let Some(store) = slowest_store(requests) else {
        return Vec::new();
    };
    wait(store, decide_owned(owned(requests)))
        .unwrap_or_else(|| failed(requests, StoreFailure::Timeout))
}

/// Decides a single request from its key's lease or a cached refusal, if there is one.
fn decide_leased(requests: &[TokenRequest<'_>]) -> Option<Decision> {
    let [request] = requests else {
        return None;
    };
    let key = BadKey::check(request.key).ok()?;
    let target = Target {
        key,
        ..request.target()
    };
    request.leasing()?.try_take(&target, request.command())
}

fn owned(requests: &[TokenRequest<'_>]) -> Vec<OwnedRequest> {
    requests.iter().map(OwnedRequest::new).collect()
}

fn slowest_store<'a>(requests: &[TokenRequest<'a>]) -> Option<&'a RedisStore> {
    requests
        .iter()
        .filter_map(|request| request.limiter.redis().map(RedisLimiter::store))
        .max_by_key(|store| store.timeout())
}

/// No store was reached, and nothing was taken.
pub(super) fn failed(requests: &[TokenRequest<'_>], failure: StoreFailure) -> Vec<Decision> {
    requests
        .iter()
        .map(|request| request.of_failure(failure, request.command()))
        .collect()
}

async fn decide_owned(owned: Vec<OwnedRequest>) -> Vec<Decision> {
    let requests: Vec<_> = owned.iter().map(OwnedRequest::request).collect();
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
        if let Err(bad) = BadKey::check(request.key) {
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
        let members: Vec<_> = group.iter().map(|index| requests[*index]).collect();
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
///
/// A lease is in this process, so a request that takes from one is a group of its own.
fn groups(requests: &[TokenRequest<'_>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let step = request.step(Command::Peek);
        let fits = |group: &&mut Vec<usize>| {
            let first = &requests[group[0]];
            match (&step, first.step(Command::Peek)) {
                (None, None) => true,
                (Some(step), Some(of_first)) => {
                    let is_leased = request.leasing().is_some() || first.leasing().is_some();
                    !is_leased && step.is_reachable_with(&of_first)
                }
                _ => false,
            }
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// Takes for a whole group, or for none of it.
async fn take(group: &[TokenRequest<'_>], deadline: Instant) -> Vec<Decision> {
    if let [request] = group
        && let Some(decision) = take_leased(request, deadline).await
    {
        return vec![decision];
    }
    if let Some(steps) = memory_steps(group) {
        return memory::run_all(&steps, Decision::of);
    }
    let steps: Vec<_> = group
        .iter()
        .filter_map(|request| request.step(request.command()))
        .collect();
    match redis::run_all(&steps, deadline).await {
        Ok(decided) if decided.iter().all(balde_core::Decision::is_allowed) => {
            decided.into_iter().map(Decision::of).collect()
        }
        Ok(decided) => {
            // The script returns what would have happened; callers get the bucket as it is.
            let untouched = |index: usize| {
                let first = group
                    .iter()
                    .position(|request| request.is_same_bucket(&group[index]));
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

/// Takes the tokens of a request from a lease, if leases apply to it.
async fn take_leased(request: &TokenRequest<'_>, deadline: Instant) -> Option<Decision> {
    let (redis, command) = (request.leasing()?, request.command());
    let target = request.target();
    if let Some(decision) = redis.try_take(&target, command) {
        return Some(decision);
    }
    let taken = redis.take_leased(&target, command, deadline).await?;
    Some(taken.unwrap_or_else(|failure| request.of_failure(failure, command)))
}

/// Decides each request by its failure policy. If one is denied, local buckets get their tokens back.
fn fall_back_together(group: &[TokenRequest<'_>], failure: StoreFailure) -> Vec<Decision> {
    let mut decisions: Vec<_> = group
        .iter()
        .map(|request| request.of_failure(failure, request.command()))
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

fn return_local(request: &TokenRequest<'_>, decision: &mut Decision) {
    if let Some(redis) = request.limiter.redis() {
        let n = decision.moved();
        let (key, tier) = (request.key, request.tier_id());
        redis.buckets().credit_local(key, tier, n);
    }
    *decision = decision.as_peek(decision.core());
}

/// Gives the tokens of a group back, as far as that is possible before the deadline.
async fn give_back(
    requests: &[TokenRequest<'_>],
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
        match (request.leasing(), request.memory_step(command)) {
            (Some(redis), _) => {
                redis
                    .return_leased(&request.target(), decision.moved())
                    .await;
            }
            (None, Some(step)) => {
                memory::run(&step);
            }
            (None, None) => credits.extend(request.step(command)),
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
async fn peek(request: &TokenRequest<'_>, deadline: Instant) -> Decision {
    let found = match request.limiter.redis() {
        None => match request.memory_step(Command::Peek) {
            Some(step) => memory::run(&step),
            None => return request.of_failure(StoreFailure::Disconnected, Command::Peek),
        },
        Some(redis) => {
            let (buckets, tier) = (redis.buckets(), request.tier_id());
            let peeking = buckets.run_as(request.key, tier, Command::Peek, None, None, deadline);
            match peeking.await {
                Ok(found) => found,
                Err(failure) => return request.of_failure(failure, Command::Peek),
            }
        }
    };
    let taken = found.then(request.command());
    Decision::of(if taken.is_allowed() { found } else { taken })
}
