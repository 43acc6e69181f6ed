//! An admitted request, until it is settled by its outcome.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use balde::{Decision, Hold, RateLimiter};
use smallvec::SmallVec;

use super::matching::Located;
use super::ruleset::Ruleset;
use super::{Engine, Outcome, State};

/// Indices of buckets that are decided together.
pub(super) type Indices = SmallVec<[usize; 4]>;

/// Tokens held in Redis, with the buckets that they were taken from.
pub(super) type Held = Vec<(Hold, Indices)>;

/// An admitted request. It is settled once: by [`settle`](Ticket::settle), or as
/// [`Outcome::Abandoned`] when it is dropped.
#[must_use = "a ticket that is dropped is settled as abandoned"]
pub struct Ticket {
    engine: Engine,
    /// The profile under which the request was admitted: its prices apply.
    rules: Arc<Ruleset>,
    generation: u64,
    buckets: Vec<Bucket>,
    /// `None` with buckets in memory.
    held: Option<Held>,
    is_settled: bool,
}

/// One bucket that the request took tokens from.
pub(super) struct Bucket {
    pub(super) policy: usize,
    pub(super) located: Located,
    pub(super) decision: Option<Decision>,
    pub(super) taken: u64,
    /// The tokens that are held for the request until it ends, beside the bucket.
    pub(super) held: u64,
    /// Whether the request is settled here: not where a bucket in shadow mode would have refused.
    pub(super) is_counted: bool,
}

impl Bucket {
    pub(super) fn new(policy: usize, located: Located) -> Self {
        Self {
            policy,
            located,
            decision: None,
            taken: 0,
            held: 0,
            is_counted: true,
        }
    }
}

impl Ticket {
    pub(super) fn new(
        engine: &Engine,
        rules: Arc<Ruleset>,
        generation: u64,
        buckets: Vec<Bucket>,
        held: Option<Held>,
    ) -> Self {
        Self {
            engine: engine.clone(),
            rules,
            generation,
            buckets,
            held,
            is_settled: false,
        }
    }

    /// The decision of each policy that applies to the request, with the policy's name. Policies that
    /// admit everything make no decision.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.buckets.iter().filter_map(|bucket| {
            let name = self.rules.policy(bucket.policy).name();
            bucket.decision.as_ref().map(|decision| (name, decision))
        })
    }

    /// The names of policies in shadow mode that would have refused the request.
    pub fn shadow_refusals(&self) -> impl Iterator<Item = &str> {
        let refused = self.buckets.iter().filter(|bucket| !bucket.is_counted);
        refused.map(|bucket| self.rules.policy(bucket.policy).name())
    }

    /// Settles the request by its outcome: charges the difference if the price is more than was
    /// taken, into debt if necessary, and gives the difference back if it is less.
    ///
    /// The settlement happens even if the returned future is dropped. With buckets in memory it is
    /// done when this returns. With buckets in Redis the future waits for the first attempt;
    /// further attempts are made in the background, and each bucket is settled only once.
    pub fn settle(mut self, outcome: Outcome) -> Settlement {
        if self.held.is_none() {
            self.settle_in_memory(outcome);
            return Settlement::new(self, None);
        }
        let settling = self.settle_held(outcome);
        let settling: Vec<_> = settling
            .into_iter()
            .map(|(hold, costs, indices)| (hold.settle_each(move |index, _| costs[index]), indices))
            .collect();
        let settling = async move {
            let mut settled = Vec::new();
            for (settling, indices) in settling {
                settled.extend(indices.into_iter().zip(settling.await));
            }
            settled
        };
        Settlement::new(self, Some(Box::pin(settling)))
    }

    /// [`settle`](Ticket::settle) for callers without `await`. With buckets in Redis, a thread
    /// without a tokio runtime waits for the first attempt.
    pub fn settle_blocking(mut self, outcome: Outcome) {
        self.settle_now(outcome);
    }

    fn settle_now(&mut self, outcome: Outcome) {
        if self.held.is_none() {
            self.settle_in_memory(outcome);
            return;
        }
        for (hold, costs, _) in self.settle_held(outcome) {
            hold.settle_each_blocking(|index, _| costs[index]);
        }
    }

    /// The holds to settle in Redis, with the cost of each of their buckets.
    fn settle_held(&mut self, outcome: Outcome) -> Vec<(Hold, Vec<u64>, Indices)> {
        self.is_settled = true;
        let held = self.held.take().unwrap_or_default();
        let state = self.engine.0.state.read();
        let is_current = self.is_current(&state);
        let held = held.into_iter().map(|(hold, indices)| {
            let buckets = || indices.iter().map(|index| &self.buckets[*index]);
            let costs = buckets().map(|bucket| {
                let is_fallback = bucket.decision.is_some_and(|one| one.is_fallback());
                if is_fallback {
                    // Nothing was taken from the store.
                    return bucket.taken;
                }
                price(&self.rules, bucket, outcome)
            });
            let costs: Vec<u64> = costs.collect();
            if is_current {
                return (hold, costs, indices);
            }
            // A bucket must not be written under a limit that it no longer has: a debt that the
            // earlier limit does not have would be lost.
            drop(hold.if_dropped(|_, taken| taken));
            let requests = buckets().map(|bucket| {
                let limiter = current_limiter(&self.engine, &state, &self.rules, bucket);
                limiter.request_n(&bucket.located.key, bucket.taken)
            });
            let requests: Vec<_> = requests.collect();
            (Hold::already_taken(&requests), costs, indices)
        });
        held.collect()
    }

    /// Whether nothing was assigned and no other profile enforced since the request was admitted.
    fn is_current(&self, state: &State) -> bool {
        Arc::ptr_eq(&state.rules, &self.rules) && state.assignments.generation == self.generation
    }

    fn settle_in_memory(&mut self, outcome: Outcome) {
        self.is_settled = true;
        let state = self.engine.0.state.read();
        let is_current = self.is_current(&state);
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.is_counted) {
            let cost = price(&self.rules, bucket, outcome);
            if cost == bucket.taken {
                continue;
            }
            let limiter = if is_current {
                self.rules.limiter(bucket.policy, bucket.located.value)
            } else {
                current_limiter(&self.engine, &state, &self.rules, bucket)
            };
            let (limiter, key) = (limiter.blocking(), &bucket.located.key);
            let settled = match cost.checked_sub(bucket.taken) {
                Some(more) => limiter.charge(key, more),
                None => limiter.credit(key, bucket.taken - cost),
            };
            // In memory only a bad key can fail, and this one was good enough to be taken from.
            bucket.decision = settled.ok().or(bucket.decision);
        }
        // After the charge, so that the request counts all the time.
        if self.buckets.iter().any(|bucket| bucket.held > 0) {
            self.engine.0.holds.release(&self.rules, &mut self.buckets);
        }
    }
}

/// The limiter that has a bucket now, after another profile or assignment.
fn current_limiter<'s>(
    engine: &Engine,
    state: &'s State,
    admitted: &'s Ruleset,
    bucket: &Bucket,
) -> &'s RateLimiter {
    let policy = admitted.policy(bucket.policy);
    let gone = || admitted.limiter(bucket.policy, bucket.located.value);
    let Some(index) = state.rules.index(policy.name()) else {
        return gone();
    };
    let now = state.rules.policy(index);
    if now.scope().parts() != policy.scope().parts() {
        return gone();
    }
    let value = match (now.limits().variant(), &bucket.located.subject) {
        (None, _) => Some(0),
        (Some(variant), Some(subject)) => {
            let subject = std::str::from_utf8(subject).unwrap_or_default();
            engine.value_index(state, index, variant, subject)
        }
        (Some(_), None) => {
            let before = policy.limits().iter().nth(bucket.located.value);
            before.and_then(|(value, _)| now.value_index(value?))
        }
    };
    let Some(value) = value else {
        return gone();
    };
    let located = Located {
        value,
        subject: bucket.located.subject.clone(),
        key: bucket.located.key.clone(),
    };
    if !engine.0.options.is_redis() {
        engine.bring_up_to_date(&state.rules, &state.assignments, index, &located);
    }
    state.rules.limiter(index, value)
}

fn price(rules: &Ruleset, bucket: &Bucket, outcome: Outcome) -> u64 {
    rules.policy(bucket.policy).prices().price(outcome)
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle_now(Outcome::Abandoned);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = self.buckets.iter();
        let policies = policies.map(|bucket| self.rules.policy(bucket.policy).name());
        f.debug_struct("Ticket")
            .field("policies", &policies.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The settlement of a request, returned by [`Ticket::settle`]. It continues if it is not awaited.
pub struct Settlement {
    ticket: Ticket,
    settling: Option<Settling>,
}

type Settling = Pin<Box<dyn Future<Output = Vec<(usize, Decision)>> + Send>>;

impl Settlement {
    fn new(ticket: Ticket, settling: Option<Settling>) -> Self {
        Self { ticket, settling }
    }

    /// Whether there is nothing left to await.
    pub fn is_done(&self) -> bool {
        self.settling.is_none()
    }

    /// The latest decision of each policy that applies to the request, with the policy's name: the one
    /// that settled it or, if it is not settled yet or there was nothing to settle, the one that
    /// admitted it.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.ticket.decisions()
    }
}

impl Future for Settlement {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(settling) = &mut this.settling else {
            return Poll::Ready(());
        };
        let Poll::Ready(settled) = settling.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        for (index, decision) in settled {
            this.ticket.buckets[index].decision = Some(decision);
        }
        this.settling = None;
        Poll::Ready(())
    }
}

impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlement")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}
