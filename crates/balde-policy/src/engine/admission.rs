//! Admission: match the policies, then take from every bucket or from none.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use balde::{Hold, MultiDecision, Reason, TOKEN_REQUESTS_MAX, TokenRequest};
use smallvec::SmallVec;

use super::error::{AdmitError, Refusal, Unavailable};
use super::matching::NoBucketError;
use super::ruleset::Ruleset;
use super::ticket::{Bucket, Held, Indices, Ticket};
use super::{Engine, OnMissingPart, Outcome, State};
use crate::policy::{KeyError, MatchedRequest, Request};

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
        let (rules, buckets) = self.matched(request)?;
        self.take(CallMode::Async, rules, buckets).await
    }

    /// [`admit`](Engine::admit) for callers without `await`. With buckets in Redis the thread waits
    /// for a round trip.
    pub fn admit_blocking(&self, request: &Request<'_>) -> Result<Ticket, AdmitError> {
        let (rules, buckets) = self.matched(request)?;
        let taking = pin!(self.take(CallMode::Blocking, rules, buckets));
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => unreachable!("blocking calls are never pending"),
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
        let (rules, buckets) = match self.matched(request) {
            Ok(matched) => matched,
            Err(error) => return Admission::Ready(Err(error)),
        };
        let engine = self.clone();
        let mut taking: Admitting =
            Box::pin(async move { engine.take(CallMode::Async, rules, buckets).await });
        match taking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(admitted) => Admission::Ready(admitted),
            Poll::Pending => Admission::Pending(taking),
        }
    }

    /// Returns what `request` costs if it ends with `outcome`: the name of each policy that
    /// applies to it, and the tokens. Policies that have no bucket for the request are left out. The list
    /// is empty if servers read the request's path in different ways.
    pub fn prices(&self, request: &Request<'_>, outcome: Outcome) -> Vec<(Box<str>, u64)> {
        let state = self.0.state.read();
        let buckets = self.buckets_or_none(&state, request).into_iter();
        let price = |bucket: Bucket| {
            let policy = state.rules.policy(bucket.policy);
            (policy.name().into(), policy.prices().price(outcome))
        };
        buckets.map(price).collect()
    }

    /// Returns the buckets that `request` takes tokens from: the name of each policy that applies to
    /// it, and the bucket's key within the policy. Policies that have no bucket for the request are
    /// left out.
    pub fn bucket_keys(&self, request: &Request<'_>) -> Vec<(Box<str>, Box<[u8]>)> {
        let state = self.0.state.read();
        let buckets = self.buckets_or_none(&state, request).into_iter();
        let key = |bucket: Bucket| {
            let name = state.rules.policy(bucket.policy).name();
            (name.into(), bucket.located.key.as_slice().into())
        };
        buckets.map(key).collect()
    }

    fn buckets_or_none(&self, state: &State, request: &Request<'_>) -> Vec<Bucket> {
        let buckets = request.with_normal_path(|request| {
            let mut buckets = Vec::new();
            let Ok(()) = self.for_each_bucket(state, request, |_, found| {
                buckets.extend(found);
                Ok::<(), Infallible>(())
            });
            buckets
        });
        buckets.unwrap_or_default()
    }

    /// Visits every policy that applies to a request, with its bucket.
    fn for_each_bucket<E>(
        &self,
        state: &State,
        request: &Request<'_>,
        mut visit: impl FnMut(usize, Result<Bucket, NoBucketError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let matcher = &state.rules.matcher;
        matcher.for_each_match(request, |index, policy, rule| {
            let source = MatchedRequest { request, rule };
            let assigned =
                |variant: &str, subject: &str| self.value_index(state, index, variant, subject);
            let located = matcher.locate(index, &source, &assigned);
            let bucket = located.map(|located| {
                let claim = self
                    .0
                    .options
                    .in_flight
                    .claim(policy, located.value, request.class);
                Bucket::new(index, located, claim)
            });
            visit(index, bucket)
        })
    }

    /// The buckets that a request takes tokens from. A policy that has none for it refuses the request,
    /// which is counted here, because no limiter will see it.
    fn matched(&self, request: &Request<'_>) -> Result<(Arc<Ruleset>, Vec<Bucket>), AdmitError> {
        let state = self.0.state.read();
        let buckets = request.with_normal_path(|request| self.buckets(&state, request))?;
        Ok((Arc::clone(&state.rules), buckets?))
    }

    fn buckets(&self, state: &State, request: &Request<'_>) -> Result<Vec<Bucket>, NoBucketError> {
        let rules = &state.rules;
        let mut buckets = Vec::with_capacity(2);
        self.for_each_bucket(state, request, |index, found| {
            let error = match found {
                Ok(_) if buckets.len() == TOKEN_REQUESTS_MAX => {
                    NoBucketError::new(rules.policy(index), KeyError::TooManyPolicies)
                }
                Ok(bucket) => {
                    buckets.push(bucket);
                    return Ok(());
                }
                Err(error)
                    if self.0.options.on_missing_part == OnMissingPart::Skip
                        && !matches!(error.key_error(), KeyError::Ambiguous { .. }) =>
                {
                    return Ok(());
                }
                Err(error) => error,
            };
            rules.limiter(index).limiter.count_no_key();
            Err(error)
        })?;
        Ok(buckets)
    }

    /// Takes from every bucket of the policies that must admit the request, or from none.
    async fn take(
        &self,
        mode: CallMode,
        rules: Arc<Ruleset>,
        mut buckets: Vec<Bucket>,
    ) -> Result<Ticket, AdmitError> {
        let mut held = Held::new();
        let Selected {
            enforced,
            shadow,
            free,
        } = Selected::new(&rules, &buckets);
        if !enforced.is_empty() {
            let taken = mode.take(&requests(&rules, &buckets, &enforced)).await;
            match taken {
                Ok(hold) => keep(&mut buckets, enforced, hold, &mut held),
                Err(refused) => {
                    let n = self.0.options.refusal_cost;
                    for request in requests(&rules, &buckets, &select_all(&buckets)) {
                        if n > 0 {
                            // Best effort: it is refused whether or not the cost can be charged.
                            mode.charge(&request, n).await;
                        }
                    }
                    return Err(refusal(&rules, &buckets, &enforced, &refused));
                }
            }
        }
        for index in shadow {
            let one = Indices::from_slice(&[index]);
            let taken = mode.take(&requests(&rules, &buckets, &one)).await;
            match taken {
                Ok(hold) => keep(&mut buckets, one, hold, &mut held),
                Err(refused) => {
                    // A bucket in shadow mode that would have refused does not count the request.
                    let bucket = &mut buckets[index];
                    bucket.decision = refused.parts().first().copied();
                    bucket.is_counted = false;
                    rules.limiter(bucket.policy).count_shadow_refusal();
                }
            }
        }
        if !free.is_empty() {
            // Nothing is taken from these buckets now, and the price is charged when the request ends.
            let requests = requests(&rules, &buckets, &free);
            held.push((Hold::already_taken(&requests), free));
        }
        Ok(Ticket::new(self, rules, buckets, held))
    }
}

/// Whether the SDK is awaited or blocks, so that both forms of admission share one body.
#[derive(Clone, Copy)]
enum CallMode {
    Async,
    Blocking,
}

impl CallMode {
    async fn take(self, requests: &[TokenRequest<'_>]) -> Result<Hold, MultiDecision> {
        match self {
            Self::Async => Hold::take(requests).await,
            Self::Blocking => Hold::take_blocking(requests),
        }
    }

    async fn charge(self, request: &TokenRequest<'_>, n: u64) {
        let _charged = match self {
            Self::Async => request.charge(n).await,
            Self::Blocking => request.charge_blocking(n),
        };
    }
}

/// The buckets of a request by what their policies do, as indices.
#[derive(Default)]
struct Selected {
    /// Have to admit the request.
    enforced: Indices,
    /// Decide, but do not refuse.
    shadow: Indices,
    /// Admit everything.
    free: Indices,
}

impl Selected {
    fn new(rules: &Ruleset, buckets: &[Bucket]) -> Self {
        let mut selected = Self::default();
        for (index, bucket) in buckets.iter().enumerate() {
            let kind = if rules.policy(bucket.policy).admission() == 0 {
                &mut selected.free
            } else if rules.limiter(bucket.policy).is_shadow {
                &mut selected.shadow
            } else {
                &mut selected.enforced
            };
            kind.push(index);
        }
        selected
    }
}

fn select_all(buckets: &[Bucket]) -> Indices {
    (0..buckets.len()).collect()
}

/// What to take from some buckets.
fn requests<'a>(
    rules: &'a Ruleset,
    buckets: &'a [Bucket],
    indices: &[usize],
) -> SmallVec<[TokenRequest<'a>; 4]> {
    let mut requests = SmallVec::new();
    for index in indices {
        requests.push(buckets[*index].request(rules));
    }
    requests
}

/// Keeps a hold for the ticket. If the caller goes away before it has one, everything is given back.
fn keep(buckets: &mut [Bucket], indices: Indices, hold: Hold, held: &mut Held) {
    for (index, decision) in indices.iter().zip(hold.decisions()) {
        buckets[*index].decision = Some(*decision);
    }
    held.push((hold.if_dropped(|_, _| 0), indices));
}

fn refusal(
    rules: &Arc<Ruleset>,
    buckets: &[Bucket],
    enforced: &[usize],
    refused: &MultiDecision,
) -> AdmitError {
    let at = refused.refused_index().unwrap_or(0);
    let policy = buckets[enforced[at]].policy;
    let decision = refused.parts()[at];
    if let Reason::StoreUnavailable(failure) = decision.reason() {
        return AdmitError::Unavailable(Unavailable {
            policy: rules.policy(policy).name().into(),
            failure,
            retry_after: decision.retry_after(),
        });
    }
    let policies = enforced.iter().map(|index| buckets[*index].policy);
    AdmitError::Refused(Box::new(Refusal {
        rules: Arc::clone(rules),
        policy,
        decision,
        decisions: policies.zip(refused.parts().iter().copied()).collect(),
    }))
}
