//! Tokens that events give back, once for each id.

use std::convert::Infallible;
use std::sync::Arc;

use balde::{Decision, Error, OpId};

use super::matching::Located;
use super::ruleset::Ruleset;
use super::{Engine, State, Subject};
use crate::policy::{ByVariant, MatchedRequest, PartSource, Policy, VariantSource};

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
            (Arc::clone(&state.rules), due)
        };
        let mut credited = Vec::new();
        for one in due {
            let request = rules.limiter(one.policy).request(&one.located, 0);
            let decision = request.credit_once(one.tokens, id).await?;
            credited.push(one.credited(&rules, &decision));
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
