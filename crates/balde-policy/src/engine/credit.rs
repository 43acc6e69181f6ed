//! Tokens that events give back, once for each id.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use balde::{Decision, Error, OpId};
use parking_lot::Mutex;

use super::matching::Located;
use super::ruleset::Ruleset;
use super::{Engine, State, Subject};
use crate::policy::{ByVariant, MatchedRequest, PartSource, Policy, VariantSource};

/// The most ids of credits that an engine in memory remembers; the oldest are forgotten first.
pub const CREDIT_IDS_MAX: usize = 65_536;

/// What an event gave back to one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credited {
    policy: Box<str>,
    tokens: u64,
    level: i64,
}

impl Credited {
    /// The name of the policy whose bucket was credited.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The tokens that the event is worth. A bucket never holds more than its capacity, so fewer
    /// may have been added.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The level after the credit; negative is debt.
    pub fn level(&self) -> i64 {
        self.level
    }
}

/// A bucket with the tokens that an event is worth to it.
struct Due {
    policy: usize,
    located: Located,
    tokens: u64,
}

impl Engine {
    /// Gives tokens back for an event, to every bucket of the subject whose policy lists the event.
    /// An id is credited once for each bucket: repeating a call with the same id adds nothing and
    /// returns the first result.
    ///
    /// If it fails, some buckets may have been credited already; repeat the call with the same id.
    pub async fn credit(
        &self,
        event: &str,
        subject: &Subject<'_>,
        id: &OpId,
    ) -> Result<Vec<Credited>, Error> {
        self.credit_where(event, subject, id, |_| true).await
    }

    /// Like [`credit`](Engine::credit), but only to the buckets of some policies.
    pub async fn credit_where(
        &self,
        event: &str,
        subject: &Subject<'_>,
        id: &OpId,
        is_credited: impl Fn(&Policy) -> bool,
    ) -> Result<Vec<Credited>, Error> {
        let (rules, due) = {
            let state = self.0.state.read();
            let mut due = self.due(&state, event, subject);
            due.retain(|one| is_credited(state.rules.policy(one.policy)));
            if !self.0.options.is_redis() {
                // Still locked, so that no assignment comes in between.
                return self.credit_in_memory(&state.rules, due, id);
            }
            (Arc::clone(&state.rules), due)
        };
        let mut credited = Vec::new();
        for one in due {
            let limiter = rules.limiter(one.policy, one.located.value);
            let key = &one.located.key;
            let decision = limiter.credit_once(key, one.tokens, id).await?;
            credited.push(one.credited(&rules, &decision));
        }
        Ok(credited)
    }

    fn credit_in_memory(
        &self,
        rules: &Ruleset,
        due: Vec<Due>,
        id: &OpId,
    ) -> Result<Vec<Credited>, Error> {
        let now_us = self.0.options.clock.now_us();
        let mut credited = Vec::new();
        for one in due {
            let name = rules.policy(one.policy).name();
            let limiter = rules.limiter(one.policy, one.located.value).blocking();
            let key = &one.located.key;
            let run = || {
                let decision = limiter.credit(key, one.tokens)?;
                Ok(one.credited(rules, &decision))
            };
            credited.push(self.0.credits.run(name, key, id, now_us, run)?);
        }
        Ok(credited)
    }

    /// The buckets of a subject that an event gives tokens back to.
    fn due(&self, state: &State, event: &str, subject: &Subject<'_>) -> Vec<Due> {
        let rules = &state.rules;
        let mut due = Vec::new();
        if let Some(request) = &subject.request {
            // A request that is not admitted for its path gets nothing back.
            let _refused = request.with_normal_path(|request| {
                let Ok(()) = rules.matcher.for_each_match(request, |index, _, rule| {
                    let source = MatchedRequest { request, rule };
                    due.extend(self.due_to(state, index, event, &source));
                    Ok::<(), Infallible>(())
                });
            });
        } else {
            for index in 0..rules.profile().policies().len() {
                due.extend(self.due_to(state, index, event, subject));
            }
        }
        due
    }

    fn due_to(
        &self,
        state: &State,
        index: usize,
        event: &str,
        source: &impl PartSource,
    ) -> Option<Due> {
        let rules = &state.rules;
        let policy = rules.policy(index);
        let credit = policy.credits().iter().find(|one| one.event() == event)?;
        let tokens = match credit.tokens() {
            ByVariant::One(tokens) => *tokens,
            by @ ByVariant::By { variant, .. } => {
                let value = self.value_for(state, variant, source)?;
                by.get(Some(&value)).copied().unwrap_or(0)
            }
        };
        if tokens == 0 {
            return None;
        }
        let assigned =
            |variant: &str, subject: &str| self.value_index(state, index, variant, subject);
        let located = rules.matcher.locate(index, source, &assigned).ok()?;
        if !self.0.options.is_redis() {
            self.bring_up_to_date(rules, &state.assignments, index, &located);
        }
        Some(Due {
            policy: index,
            located,
            tokens,
        })
    }

    /// The value of a variant for a request or subject.
    fn value_for(
        &self,
        state: &State,
        variant: &str,
        source: &impl PartSource,
    ) -> Option<Box<str>> {
        let known = state.rules.profile().variant(variant)?;
        let VariantSource::Assigned { part, .. } = known.source() else {
            return known.value_of(source).map(Into::into);
        };
        let subject = source.part(part)?;
        let assigned = state.assignments.value(variant, &subject);
        let value = assigned.or_else(|| self.0.options.default_value(variant));
        value.map(Into::into)
    }
}

impl Due {
    fn credited(&self, rules: &Ruleset, decision: &Decision) -> Credited {
        Credited {
            policy: rules.policy(self.policy).name().into(),
            tokens: self.tokens,
            level: decision.level(),
        }
    }
}

/// The credits that an engine in memory has given, by their ids. Each limiter remembers its own
/// operations, too, but a bucket may move from one limiter to another.
pub(super) struct CreditLog {
    ttl_us: u64,
    /// Keys and ids may be long and personal; two keyed hashes take their place.
    secrets: [RandomState; 2],
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    results: HashMap<[u64; 2], Credited>,
    in_order: VecDeque<(u64, [u64; 2])>,
}

impl CreditLog {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl_us: u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX),
            secrets: [RandomState::new(), RandomState::new()],
            done: Mutex::default(),
        }
    }

    /// Runs a credit, or returns what it gave the first time.
    fn run(
        &self,
        policy: &str,
        key: &[u8],
        id: &OpId,
        now_us: u64,
        credit: impl FnOnce() -> Result<Credited, Error>,
    ) -> Result<Credited, Error> {
        let name = self
            .secrets
            .each_ref()
            .map(|secret| secret.hash_one((policy, key, id)));
        let done = &mut *self.done.lock();
        while let Some((until_us, oldest)) = done.in_order.front().copied()
            && (until_us <= now_us || done.in_order.len() > CREDIT_IDS_MAX)
        {
            done.in_order.pop_front();
            done.results.remove(&oldest);
        }
        if let Some(result) = done.results.get(&name) {
            return Ok(result.clone());
        }
        let result = credit()?;
        done.in_order
            .push_back((now_us.saturating_add(self.ttl_us), name));
        done.results.insert(name, result.clone());
        Ok(result)
    }
}

impl fmt::Debug for CreditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreditLog").finish_non_exhaustive()
    }
}
