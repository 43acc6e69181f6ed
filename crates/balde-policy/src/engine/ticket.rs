//! An admitted request, until it is settled by its outcome.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use balde::{Decision, Hold, Settling, Tier, TokenRequest};
use smallvec::SmallVec;

use super::builder::Claim;
use super::matching::Located;
use super::ruleset::Ruleset;
use super::{Engine, Outcome, State};

/// Indices of buckets that are decided together.
pub(super) type Indices = SmallVec<[usize; 4]>;

/// Tokens that are held, with the indices of the buckets that they are of.
pub(super) type Held = SmallVec<[(Hold, Indices); 1]>;

/// An admitted request. It is settled once: by [`settle`](Ticket::settle), or as
/// [`Outcome::Abandoned`] when it is dropped.
#[must_use = "a ticket that is dropped is settled as abandoned"]
pub struct Ticket {
    engine: Engine,
    /// The profile under which the request was admitted: its prices apply.
    rules: Arc<Ruleset>,
    buckets: Vec<Bucket>,
    /// Empty once the request is settled.
    held: Held,
}

/// One bucket that the request takes tokens from.
pub(super) struct Bucket {
    pub(super) policy: usize,
    pub(super) located: Located,
    claim: Claim,
    pub(super) decision: Option<Decision>,
    /// Whether the request is settled here: not where a bucket in shadow mode would have refused.
    pub(super) is_counted: bool,
}

impl Bucket {
    pub(super) fn new(policy: usize, located: Located, claim: Claim) -> Self {
        Self {
            policy,
            located,
            claim,
            decision: None,
            is_counted: true,
        }
    }

    /// What the request takes from the bucket.
    pub(super) fn request<'a>(&'a self, rules: &'a Ruleset) -> TokenRequest<'a> {
        let Claim { tokens, needed } = self.claim;
        let request = rules.limiter(self.policy).request(&self.located, tokens);
        request.needing(needed)
    }
}

impl Ticket {
    pub(super) fn new(
        engine: &Engine,
        rules: Arc<Ruleset>,
        buckets: Vec<Bucket>,
        held: Held,
    ) -> Self {
        Self {
            engine: engine.clone(),
            rules,
            buckets,
            held,
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
        let settling = self.settle_holds(outcome);
        Settlement::start(self, settling, outcome)
    }

    /// [`settle`](Ticket::settle) for callers without `await`. With buckets in Redis, a thread
    /// without a tokio runtime waits for the first attempt.
    pub fn settle_blocking(mut self, outcome: Outcome) {
        self.settle_holds(outcome);
    }

    /// Begins to settle what is held, at the prices of this outcome.
    fn settle_holds(&mut self, outcome: Outcome) -> Settlings {
        let held = std::mem::take(&mut self.held);
        let mut settlings = Settlings::new();
        if held.is_empty() {
            return settlings;
        }
        let state = self.engine.0.state.read();
        let is_same_profile = Arc::ptr_eq(&state.rules, &self.rules);
        for (hold, indices) in held {
            let bucket = |index: usize| &self.buckets[indices[index]];
            let hold = hold.in_tiers(|index| {
                let bucket = bucket(index);
                // Only an assignment changes the tier of a bucket under the same profile.
                if is_same_profile && bucket.located.subject.is_none() {
                    return None;
                }
                self.current_tier(&state, is_same_profile, bucket)
            });
            let settling = hold.settle_each(|index, _| self.price(bucket(index), outcome));
            settlings.push((settling, indices));
        }
        settlings
    }

    fn price(&self, bucket: &Bucket, outcome: Outcome) -> u64 {
        self.rules.policy(bucket.policy).prices().price(outcome)
    }

    /// The tier that a bucket is in now, after another profile or assignment; `None` if its policy is
    /// gone.
    fn current_tier(&self, state: &State, is_same_profile: bool, bucket: &Bucket) -> Option<Tier> {
        let policy = self.rules.policy(bucket.policy);
        let index = if is_same_profile {
            bucket.policy
        } else {
            state.rules.index(policy.name())?
        };
        let now = state.rules.policy(index);
        if now.scope().parts() != policy.scope().parts() {
            return None;
        }
        let value = match (now.limits().variant(), &bucket.located.subject) {
            (None, _) => 0,
            (Some(variant), Some(subject)) => {
                let subject = std::str::from_utf8(subject).unwrap_or_default();
                self.engine.value_index(state, index, variant, subject)?
            }
            (Some(_), None) if is_same_profile => bucket.located.value,
            (Some(_), None) => {
                let before = policy.limits().iter().nth(bucket.located.value);
                before.and_then(|(value, _)| now.value_index(value?))?
            }
        };
        Some(state.rules.limiter(index).tier(value))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle_holds(Outcome::Abandoned);
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
    /// Empty once the first attempt has ended.
    settling: Settlings,
    outcome: Outcome,
}

/// Settlements, with the indices of their buckets.
type Settlings = SmallVec<[(Settling, Indices); 1]>;

impl Settlement {
    /// In memory the settlement is done at once.
    fn start(ticket: Ticket, settling: Settlings, outcome: Outcome) -> Self {
        let mut settlement = Self {
            ticket,
            settling,
            outcome,
        };
        let mut context = Context::from_waker(Waker::noop());
        let _is_done = settlement.poll_settling(&mut context);
        settlement
    }

    fn poll_settling(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for (settling, _) in &mut self.settling {
            ready!(settling.poll_attempt(cx));
        }
        for (settling, indices) in std::mem::take(&mut self.settling) {
            for (index, decision) in indices.into_iter().zip(settling.decisions()) {
                let bucket = &self.ticket.buckets[index];
                // A policy that admits everything and charges nothing has not looked at its bucket.
                if bucket.decision.is_some() || self.ticket.price(bucket, self.outcome) > 0 {
                    self.ticket.buckets[index].decision = Some(*decision);
                }
            }
        }
        Poll::Ready(())
    }

    /// Whether there is nothing left to await.
    pub fn is_done(&self) -> bool {
        self.settling.is_empty()
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
        self.poll_settling(cx)
    }
}

impl fmt::Debug for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlement")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}
