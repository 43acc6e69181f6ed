//! Admission: match the policies, then take from every bucket or from none.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use balde::{
    Decision, Error, Hold, MultiDecision, RateLimiter, Reason, Strategy, TOKEN_REQUESTS_MAX,
    TokenRequest, Wait,
};
use smallvec::SmallVec;

use super::error::{AdmitError, Refusal, Unavailable};
use super::matching::NoBucketError;
use super::ruleset::Ruleset;
use super::ticket::{Bucket, Held, Indices, Ticket};
use super::{Engine, InFlight, OnMissingPart, Outcome, State};
use crate::policy::{KeyError, MatchedRequest, Request};

/// The wait of a request that is refused only because of requests in flight. They end soon, and until
/// then nothing is known.
const HELD_RETRY_US: u64 = 100_000;

/// An admission that is under way.
#[cfg(feature = "tower")]
pub(crate) enum Admission {
    Ready(Result<Ticket, AdmitError>),
    Pending(Admitting),
}

#[cfg(feature = "tower")]
pub(crate) type Admitting =
    std::pin::Pin<Box<dyn Future<Output = Result<Ticket, AdmitError>> + Send>>;

impl Engine {
    /// Admits a request or refuses it: takes the admission cost from the bucket of every policy
    /// that applies to it, or from none. The request's path must not include the profile's base path;
    /// see [`without_base`](Engine::without_base). Rules see the path in its
    /// [normal form](crate::PathRules::normalized).
    ///
    /// With buckets in memory this never waits.
    pub async fn admit(&self, request: &Request<'_>) -> Result<Ticket, AdmitError> {
        if !self.0.options.is_redis() {
            return self.admit_in_memory(request);
        }
        let (rules, generation, buckets) = self.matched(request)?;
        let class = request.class.map(Into::into);
        Box::pin(self.take(Face::Async, rules, generation, buckets, class)).await
    }

    /// [`admit`](Engine::admit) for callers without `await`. With buckets in Redis the thread waits
    /// for a round trip.
    pub fn admit_blocking(&self, request: &Request<'_>) -> Result<Ticket, AdmitError> {
        if !self.0.options.is_redis() {
            return self.admit_in_memory(request);
        }
        let (rules, generation, buckets) = self.matched(request)?;
        let class = request.class.map(Into::into);
        let taking = pin!(self.take(Face::Blocking, rules, generation, buckets, class));
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => unreachable!("the blocking face of the SDK is never pending"),
        }
    }

    /// Strips the profile's base path from a path in its
    /// [normal form](crate::PathRules::normalized); `None` if the path is under none of the base paths.
    pub fn without_base<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.0.state.read().rules.profile().without_base(path)
    }

    /// [`admit`](Engine::admit) as a future that borrows nothing.
    #[cfg(feature = "tower")]
    pub(crate) fn start(&self, request: &Request<'_>) -> Admission {
        if !self.0.options.is_redis() {
            return Admission::Ready(self.admit_in_memory(request));
        }
        match self.matched(request) {
            Err(error) => Admission::Ready(Err(error)),
            Ok((rules, generation, buckets)) => {
                let engine = self.clone();
                let class = request.class.map(Into::into);
                Admission::Pending(Box::pin(async move {
                    engine
                        .take(Face::Async, rules, generation, buckets, class)
                        .await
                }))
            }
        }
    }

    /// Returns what `request` costs if it ends with `outcome`: the name of each policy that
    /// applies to it, and the tokens. Policies that have no bucket for the request are left out. The list
    /// is empty if servers read the request's path in different ways.
    pub fn prices(&self, request: &Request<'_>, outcome: Outcome) -> Vec<(Box<str>, u64)> {
        let prices = request.with_normal_path(|request| self.prices_of(request, outcome));
        prices.unwrap_or_default()
    }

    fn prices_of(&self, request: &Request<'_>, outcome: Outcome) -> Vec<(Box<str>, u64)> {
        let state = self.0.state.read();
        let mut prices = Vec::new();
        let Ok(()) = state
            .rules
            .matcher
            .for_each_match(request, |index, policy, rule| {
                let source = MatchedRequest { request, rule };
                let assigned = |variant: &str, subject: &str| {
                    self.value_index(&state, index, variant, subject)
                };
                if state
                    .rules
                    .matcher
                    .locate(index, &source, &assigned)
                    .is_ok()
                {
                    prices.push((policy.name().into(), policy.prices().price(outcome)));
                }
                Ok::<(), Infallible>(())
            });
        prices
    }

    /// Returns the buckets that `request` takes tokens from: the name of each policy that applies to
    /// it, and the bucket's key within the policy. Policies that have no bucket for the request are
    /// left out.
    pub fn bucket_keys(&self, request: &Request<'_>) -> Vec<(Box<str>, Box<[u8]>)> {
        let state = self.0.state.read();
        let matcher = &state.rules.matcher;
        let mut keys = Vec::new();
        let Ok(()) = matcher.for_each_match(request, |index, policy, rule| {
            let source = MatchedRequest { request, rule };
            let assigned =
                |variant: &str, subject: &str| self.value_index(&state, index, variant, subject);
            if let Ok(located) = matcher.locate(index, &source, &assigned) {
                keys.push((policy.name().into(), located.key.as_slice().into()));
            }
            Ok::<(), Infallible>(())
        });
        keys
    }

    /// The buckets that a request takes tokens from. A policy that has none for it refuses the request,
    /// which is counted here, because no limiter will see it.
    fn buckets(&self, state: &State, request: &Request<'_>) -> Result<Vec<Bucket>, AdmitError> {
        let buckets = request.with_normal_path(|request| self.buckets_of(state, request))?;
        Ok(buckets?)
    }

    fn buckets_of(
        &self,
        state: &State,
        request: &Request<'_>,
    ) -> Result<Vec<Bucket>, NoBucketError> {
        let rules = &state.rules;
        let is_redis = self.0.options.is_redis();
        let mut buckets = Vec::with_capacity(2);
        rules
            .matcher
            .for_each_match(request, |index, policy, rule| {
                let source = MatchedRequest { request, rule };
                let assigned =
                    |variant: &str, subject: &str| self.value_index(state, index, variant, subject);
                match rules.matcher.locate(index, &source, &assigned) {
                    Ok(_) if buckets.len() == TOKEN_REQUESTS_MAX => {
                        rules.limiter(index, 0).count_no_key();
                        return Err(NoBucketError::new(policy, KeyError::TooManyPolicies));
                    }
                    Ok(located) => {
                        if !is_redis {
                            self.bring_up_to_date(rules, &state.assignments, index, &located);
                        }
                        buckets.push(Bucket::new(index, located));
                    }
                    Err(error)
                        if self.0.options.on_missing_part == OnMissingPart::Skip
                            && !matches!(error.key_error(), KeyError::Ambiguous { .. }) => {}
                    Err(error) => {
                        rules.limiter(index, 0).count_no_key();
                        return Err(error);
                    }
                }
                Ok(())
            })?;
        Ok(buckets)
    }

    fn matched(
        &self,
        request: &Request<'_>,
    ) -> Result<(Arc<Ruleset>, u64, Vec<Bucket>), AdmitError> {
        let state = self.0.state.read();
        let buckets = self.buckets(&state, request)?;
        Ok((
            Arc::clone(&state.rules),
            state.assignments.generation,
            buckets,
        ))
    }

    fn admit_in_memory(&self, request: &Request<'_>) -> Result<Ticket, AdmitError> {
        let state = self.0.state.read();
        let mut buckets = self.buckets(&state, request)?;
        let rules = &state.rules;
        let enforced = select(rules, &buckets, Kind::Enforced);
        let decided = match (self.0.options.in_flight, enforced.as_slice()) {
            (_, []) => Ok(()),
            (InFlight::Reserved, [only]) => {
                let bucket = &mut buckets[*only];
                let n = rules.policy(bucket.policy).admission();
                let limiter = rules.limiter(bucket.policy, bucket.located.value);
                let decision = limiter.blocking().check_n(&bucket.located.key, n);
                bucket.decision = Some(decision);
                bucket.taken = n;
                match decision.wait() {
                    Wait::None => Ok(()),
                    wait => Err((*only, wait)),
                }
            }
            (InFlight::Reserved, _) => {
                let requests = self.requests(rules, &buckets, &enforced);
                let decided = balde::check_all_blocking(&requests);
                drop(requests);
                self.conclude(rules, &mut buckets, &enforced, &decided)
            }
            (InFlight::AfterResponse, _) => {
                for index in &enforced {
                    peek_in_memory(rules, &mut buckets[*index]);
                }
                worst(rules, &buckets, &enforced).map_or(Ok(()), Err)
            }
            (InFlight::HighestPrice, _) => {
                self.hold_highest(rules, &mut buckets, &enforced, request.class)
            }
        };
        if let Err((index, wait)) = decided {
            let n = self.0.options.refusal_cost;
            if n > 0 {
                for bucket in &buckets {
                    let limiter = rules.limiter(bucket.policy, bucket.located.value);
                    // In memory only a bad key can fail, and this one was just used.
                    let _charged = limiter.blocking().charge(&bucket.located.key, n);
                }
            }
            return Err(refusal(rules, &buckets, &enforced, index, wait));
        }
        for index in select(rules, &buckets, Kind::Shadow) {
            let bucket = &mut buckets[index];
            match self.0.options.in_flight {
                InFlight::Reserved => {
                    let n = rules.policy(bucket.policy).admission();
                    let limiter = rules.limiter(bucket.policy, bucket.located.value);
                    bucket.decision = Some(limiter.blocking().check_n(&bucket.located.key, n));
                    bucket.taken = n;
                }
                InFlight::AfterResponse | InFlight::HighestPrice => peek_in_memory(rules, bucket),
            }
            note_shadow(rules, bucket);
        }
        let generation = state.assignments.generation;
        Ok(Ticket::new(
            self,
            Arc::clone(rules),
            generation,
            buckets,
            None,
        ))
    }

    /// Decides by the levels of buckets in memory and what is held on them, and holds the highest
    /// price of this request.
    fn hold_highest(
        &self,
        rules: &Ruleset,
        buckets: &mut [Bucket],
        enforced: &Indices,
        class: Option<&str>,
    ) -> Result<(), (usize, Wait)> {
        let mut holds = self.0.holds.lock();
        let mut refused: Option<(usize, Wait)> = None;
        for index in enforced {
            let bucket = &mut buckets[*index];
            peek_in_memory(rules, bucket);
            let Some(decision) = bucket.decision else {
                continue;
            };
            let policy = rules.policy(bucket.policy);
            let reserved = policy.reserved_tokens(decision.limit(), class);
            let needed = policy.admission() + reserved + holds.on(rules, bucket);
            let is_admitted = i64::try_from(needed).is_ok_and(|n| decision.level() >= n);
            let limiter = rules
                .limiter(bucket.policy, bucket.located.value)
                .blocking();
            // Neither changes the bucket: they count the decision, and log a denial.
            let n = if is_admitted { 0 } else { u64::MAX };
            limiter.check_n(&bucket.located.key, n);
            if !is_admitted {
                // What is held may come back at any time; what is not there has to be refilled.
                let wait = match decision.wait_for(policy.admission() + reserved) {
                    Wait::None => Wait::Us(HELD_RETRY_US),
                    wait => wait,
                };
                if refused.is_none_or(|(_, longest)| wait_us(wait) > wait_us(longest)) {
                    refused = Some((*index, wait));
                }
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        holds.add(rules, buckets, enforced);
        Ok(())
    }

    /// Charges the highest price to each bucket in Redis, or to none. What was charged is given back
    /// if the caller goes away meanwhile.
    async fn charge_highest(
        &self,
        face: Face,
        rules: &Ruleset,
        buckets: &mut [Bucket],
        enforced: &Indices,
        class: Option<&str>,
    ) -> Result<Held, (usize, Wait)> {
        let mut held = Held::new();
        for index in enforced {
            let bucket = &mut buckets[*index];
            let policy = rules.policy(bucket.policy);
            let limiter = rules.limiter(bucket.policy, bucket.located.value);
            let key = &bucket.located.key;
            let charged = face.charge(limiter, key, policy.prices().highest()).await;
            let Ok(decision) = charged else {
                // The failure policy decides, as it does for a take.
                let decision = face.check(limiter, key, policy.admission()).await;
                bucket.decision = Some(decision);
                if !decision.is_allowed() {
                    return Err((*index, decision.wait()));
                }
                continue;
            };
            let taken = decision.moved();
            let hold = Hold::already_taken(&[limiter.request_n(key, taken)]);
            held.push((hold.if_dropped(|_, _| 0), std::iter::once(*index).collect()));
            bucket.decision = Some(decision);
            bucket.taken = taken;
            let reserved = policy.reserved_tokens(decision.limit(), class);
            let needed = policy.admission() + reserved;
            if !i64::try_from(needed).is_ok_and(|n| decision.level_before() >= n) {
                return Err((*index, refill_wait(&decision, needed)));
            }
        }
        Ok(held)
    }

    /// Takes from buckets in Redis.
    async fn take(
        &self,
        face: Face,
        rules: Arc<Ruleset>,
        generation: u64,
        mut buckets: Vec<Bucket>,
        class: Option<Box<str>>,
    ) -> Result<Ticket, AdmitError> {
        let mut held = Held::new();
        let enforced = select(&rules, &buckets, Kind::Enforced);
        if self.0.options.in_flight == InFlight::HighestPrice {
            let class = class.as_deref();
            let charging = self.charge_highest(face, &rules, &mut buckets, &enforced, class);
            match charging.await {
                Ok(charged) => held = charged,
                Err((index, wait)) => {
                    return Err(refusal(&rules, &buckets, &enforced, index, wait));
                }
            }
        } else if !enforced.is_empty() {
            let taken = face.take(&self.requests(&rules, &buckets, &enforced)).await;
            let kept = self.keep(&rules, &mut buckets, &enforced, taken, &mut held);
            if let Err((index, wait)) = kept {
                let n = self.0.options.refusal_cost;
                for bucket in buckets.iter().filter(|_| n > 0) {
                    let limiter = rules.limiter(bucket.policy, bucket.located.value);
                    // Best effort: the request is refused whether or not the cost can be charged.
                    let _charged = face.charge(limiter, &bucket.located.key, n).await;
                }
                return Err(refusal(&rules, &buckets, &enforced, index, wait));
            }
        }
        for index in select(&rules, &buckets, Kind::Shadow) {
            let one = Indices::from_slice(&[index]);
            let taken = face.take(&self.requests(&rules, &buckets, &one)).await;
            let _never_refuses = self.keep(&rules, &mut buckets, &one, taken, &mut held);
            note_shadow(&rules, &mut buckets[index]);
        }
        hold_free_buckets(&rules, &buckets, &mut held);
        Ok(Ticket::new(self, rules, generation, buckets, Some(held)))
    }

    /// What to take from some buckets.
    fn requests<'a>(
        &self,
        rules: &'a Ruleset,
        buckets: &'a [Bucket],
        indices: &[usize],
    ) -> SmallVec<[TokenRequest<'a>; 4]> {
        let request = |index: &usize| {
            let bucket = &buckets[*index];
            let n = match self.0.options.in_flight {
                // Only policies in shadow mode are asked this way with the highest price.
                InFlight::Reserved | InFlight::HighestPrice => {
                    rules.policy(bucket.policy).admission()
                }
                InFlight::AfterResponse => 0,
            };
            let limiter = rules.limiter(bucket.policy, bucket.located.value);
            limiter.request_n(&bucket.located.key, n)
        };
        indices.iter().map(request).collect()
    }

    /// Notes what was decided for some buckets, and which of them refuses.
    fn conclude(
        &self,
        rules: &Ruleset,
        buckets: &mut [Bucket],
        indices: &[usize],
        decided: &MultiDecision,
    ) -> Result<(), (usize, Wait)> {
        for (index, decision) in indices.iter().zip(decided.parts()) {
            self.note(rules, &mut buckets[*index], decision);
        }
        if self.0.options.in_flight == InFlight::AfterResponse {
            return worst(rules, buckets, indices).map_or(Ok(()), Err);
        }
        match decided.refused_index() {
            Some(refused) => Err((indices[refused], decided.parts()[refused].wait())),
            None => Ok(()),
        }
    }

    /// Keeps a hold for the ticket, or returns the bucket that refuses.
    fn keep(
        &self,
        rules: &Ruleset,
        buckets: &mut [Bucket],
        indices: &Indices,
        taken: Result<Hold, MultiDecision>,
        held: &mut Held,
    ) -> Result<(), (usize, Wait)> {
        let hold = match taken {
            Ok(hold) => hold,
            Err(refused) => return self.conclude(rules, buckets, indices, &refused),
        };
        for (index, decision) in indices.iter().zip(hold.decisions()) {
            self.note(rules, &mut buckets[*index], decision);
        }
        if self.0.options.in_flight == InFlight::AfterResponse
            && let Some(refused) = worst(rules, buckets, indices)
        {
            return Err(refused);
        }
        held.push((hold, indices.clone()));
        Ok(())
    }

    fn note(&self, rules: &Ruleset, bucket: &mut Bucket, decision: &Decision) {
        bucket.decision = Some(*decision);
        bucket.taken = match self.0.options.in_flight {
            InFlight::Reserved | InFlight::HighestPrice => rules.policy(bucket.policy).admission(),
            InFlight::AfterResponse => 0,
        };
    }
}

/// Which face of the SDK to use, so that both forms of admission share one body.
#[derive(Clone, Copy)]
enum Face {
    Async,
    Blocking,
}

impl Face {
    async fn take(self, requests: &[TokenRequest<'_>]) -> Result<Hold, MultiDecision> {
        match self {
            Self::Async => Hold::take(requests).await,
            Self::Blocking => Hold::take_blocking(requests),
        }
    }

    async fn charge(self, limiter: &RateLimiter, key: &[u8], n: u64) -> Result<Decision, Error> {
        match self {
            Self::Async => limiter.charge(key, n).await,
            Self::Blocking => limiter.blocking().charge(key, n),
        }
    }

    async fn check(self, limiter: &RateLimiter, key: &[u8], n: u64) -> Decision {
        match self {
            Self::Async => limiter.check_n(key, n).await,
            Self::Blocking => limiter.blocking().check_n(key, n),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has to admit the request.
    Enforced,
    /// Decides, but does not refuse.
    Shadow,
    /// Admits everything.
    Free,
}

fn select(rules: &Ruleset, buckets: &[Bucket], kind: Kind) -> Indices {
    let is_kind = |(_, bucket): &(usize, &Bucket)| {
        let is_free = rules.policy(bucket.policy).admission() == 0;
        match rules.limiters(bucket.policy).is_shadow {
            _ if is_free => kind == Kind::Free,
            true => kind == Kind::Shadow,
            false => kind == Kind::Enforced,
        }
    };
    let found = buckets.iter().enumerate().filter(is_kind);
    found.map(|(index, _)| index).collect()
}

/// Policies that admit everything: nothing is taken from their buckets now, and the price is
/// charged when the request ends.
fn hold_free_buckets(rules: &Ruleset, buckets: &[Bucket], held: &mut Held) {
    let free = select(rules, buckets, Kind::Free);
    if free.is_empty() {
        return;
    }
    let requests = free.iter().map(|index| {
        let bucket = &buckets[*index];
        let limiter = rules.limiter(bucket.policy, bucket.located.value);
        limiter.request_n(&bucket.located.key, 0)
    });
    let requests: SmallVec<[TokenRequest<'_>; 4]> = requests.collect();
    held.push((Hold::already_taken(&requests), free));
}

fn peek_in_memory(rules: &Ruleset, bucket: &mut Bucket) {
    let limiter = rules.limiter(bucket.policy, bucket.located.value);
    // In memory only a bad key can fail, and keys that are too long have no bucket.
    bucket.decision = limiter.blocking().peek(&bucket.located.key).ok();
}

fn wait_us(wait: Wait) -> u64 {
    match wait {
        Wait::None => 0,
        Wait::Us(us) => us.max(1),
        Wait::Never => u64::MAX,
    }
}

/// How long until a bucket that was charged, and will get everything back, holds `needed` tokens. At
/// most one refill too long.
fn refill_wait(charged: &Decision, needed: u64) -> Wait {
    let limit = charged.limit();
    let level = i128::from(charged.level_before());
    let missing = u128::try_from(i128::from(needed) - level).unwrap_or(0);
    let period_us = u128::from(limit.period_us());
    let tokens = u128::from(limit.refill_tokens());
    let us = match limit.strategy() {
        Strategy::Continuous => (missing * period_us).div_ceil(tokens.max(1)),
        _ => missing.div_ceil(tokens.max(1)) * period_us,
    };
    Wait::Us(u64::try_from(us).unwrap_or(u64::MAX).max(1))
}

/// The refusing bucket with the longest wait.
fn worst(rules: &Ruleset, buckets: &[Bucket], indices: &[usize]) -> Option<(usize, Wait)> {
    let mut worst: Option<(usize, Wait)> = None;
    for index in indices {
        let bucket = &buckets[*index];
        let Some(decision) = &bucket.decision else {
            continue;
        };
        let wait = decision.wait_for(rules.policy(bucket.policy).admission());
        if wait_us(wait) > worst.map_or(0, |(_, worst)| wait_us(worst)) {
            worst = Some((*index, wait));
        }
    }
    worst
}

/// A bucket in shadow mode that would have refused does not count the request.
fn note_shadow(rules: &Ruleset, bucket: &mut Bucket) {
    let admission = rules.policy(bucket.policy).admission();
    let is_refused = bucket.decision.is_some_and(|decision| {
        !decision.is_allowed() || (bucket.taken == 0 && decision.wait_for(admission) != Wait::None)
    });
    if is_refused {
        bucket.is_counted = false;
        rules.limiters(bucket.policy).count_shadow_refusal();
    }
}

fn refusal(
    rules: &Arc<Ruleset>,
    buckets: &[Bucket],
    enforced: &[usize],
    index: usize,
    wait: Wait,
) -> AdmitError {
    let decisions = enforced.iter().filter_map(|index| {
        let bucket = &buckets[*index];
        Some((bucket.policy, bucket.decision?))
    });
    let policy = buckets[index].policy;
    let decision = buckets[index]
        .decision
        .expect("a bucket that refuses has decided");
    if let Reason::StoreUnavailable(failure) = decision.reason() {
        return AdmitError::Unavailable(Unavailable {
            policy: rules.policy(policy).name().into(),
            failure,
            retry_after: decision.retry_after(),
        });
    }
    AdmitError::Refused(Box::new(Refusal {
        rules: Arc::clone(rules),
        policy,
        decision,
        wait,
        decisions: decisions.collect(),
    }))
}
