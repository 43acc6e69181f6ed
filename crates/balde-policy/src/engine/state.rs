//! The state of buckets, read and set outside of any request.

use std::sync::Arc;
use std::time::Duration;

use balde::{Decision, Limit, Wait};
use thiserror::Error;

use super::matching::{Located, NoBucketError};
use super::ruleset::Ruleset;
use super::{Engine, State, Subject};
use crate::policy::{MatchedRequest, Policy};

/// The state of a bucket at one moment.
#[derive(Clone, Debug)]
pub struct BucketState {
    rules: Arc<Ruleset>,
    policy: usize,
    value: usize,
    decision: Decision,
}

impl BucketState {
    fn new(rules: &Arc<Ruleset>, policy: usize, located: &Located, decision: Decision) -> Self {
        Self {
            rules: Arc::clone(rules),
            policy,
            value: located.value,
            decision,
        }
    }

    /// The tokens that requests in flight may still cost, with
    /// [`InFlight::HighestPrice`](crate::InFlight::HighestPrice); otherwise zero. They are not
    /// subtracted from the [`level`](BucketState::level).
    pub fn held(&self) -> u64 {
        self.decision.held()
    }

    /// The policy of the bucket.
    pub fn policy(&self) -> &Policy {
        self.rules.policy(self.policy)
    }

    /// The value of the variant that the limit depends on; `None` if the policy has a single limit.
    pub fn value(&self) -> Option<&str> {
        self.policy().limits().iter().nth(self.value)?.0
    }

    /// The limit that applies.
    pub fn limit(&self) -> &Limit {
        self.decision.limit()
    }

    /// The whole tokens in the bucket; negative is debt.
    pub fn level(&self) -> i64 {
        self.decision.level().saturating_add_unsigned(self.held())
    }

    /// The bucket after some time, if no other request changes it.
    pub fn after(&self, time: Duration) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            decision: self.decision.after(time),
            ..*self
        }
    }

    /// Whether the policy would admit a request now.
    pub fn is_admitting(&self) -> bool {
        self.wait_for_admission() == Wait::None
    }

    /// How long until the policy would admit a request, if no other request takes from the bucket.
    pub fn wait_for_admission(&self) -> Wait {
        match self.policy().admission() {
            0 => Wait::None,
            n => self.decision.wait_for(n),
        }
    }

    /// How long until the bucket is full.
    pub fn full_after(&self) -> Duration {
        self.decision.full_after()
    }

    /// How long until the bucket holds one whole token more; `None` if it is full.
    pub fn next_token_after(&self) -> Option<Duration> {
        self.decision.next_token_after()
    }
}

/// Why a bucket could not be read or set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StateError {
    /// The profile has no such policy, or the policy does not apply to the subject's request.
    #[error("the profile has no such policy")]
    UnknownPolicy,
    /// The subject lacks a part of the bucket's key.
    #[error(transparent)]
    NoBucket(#[from] NoBucketError),
    /// The store could not be reached.
    #[error(transparent)]
    Store(#[from] balde::Error),
}

impl Engine {
    /// Reads a subject's bucket under a policy.
    pub async fn state(
        &self,
        policy: &str,
        subject: &Subject<'_>,
    ) -> Result<BucketState, StateError> {
        let (rules, policy, located) = self.find(policy, subject)?;
        let request = rules.limiter(policy).request(&located, 0);
        let decision = request.peek().await?;
        Ok(BucketState::new(&rules, policy, &located, decision))
    }

    /// Reads all buckets that the subject's parts name, or that its request takes tokens from, in
    /// the order of the policies.
    pub async fn states(&self, subject: &Subject<'_>) -> Result<Vec<BucketState>, StateError> {
        let (rules, found) = {
            let state = self.0.state.read();
            let policies = 0..state.rules.profile().policies().len();
            let found = policies.filter_map(|index| {
                let located = self.locate(&state, index, subject).ok()??;
                Some((index, located))
            });
            let found: Vec<(usize, Located)> = found.collect();
            (Arc::clone(&state.rules), found)
        };
        let mut states = Vec::new();
        for (policy, located) in found {
            let decision = rules.limiter(policy).request(&located, 0).peek().await?;
            states.push(BucketState::new(&rules, policy, &located, decision));
        }
        Ok(states)
    }

    /// Sets the level of a subject's bucket under a policy, for instance to the result of a
    /// reconciliation. Negative is debt.
    pub async fn set_level(
        &self,
        policy: &str,
        subject: &Subject<'_>,
        level: i64,
    ) -> Result<BucketState, StateError> {
        let (rules, policy, located) = self.find(policy, subject)?;
        let request = rules.limiter(policy).request(&located, 0);
        let decision = request.set_level(level).await?;
        Ok(BucketState::new(&rules, policy, &located, decision))
    }

    /// Changes the level of a subject's bucket under a policy by some tokens: a negative number is
    /// charged, into debt if necessary, a positive one is given back. Unlike with
    /// [`set_level`](Engine::set_level), what requests take and give back meanwhile is not lost.
    pub async fn adjust_level(
        &self,
        policy: &str,
        subject: &Subject<'_>,
        by: i64,
    ) -> Result<BucketState, StateError> {
        let (rules, policy, located) = self.find(policy, subject)?;
        let request = rules.limiter(policy).request(&located, 0);
        let tokens = by.unsigned_abs();
        let decision = if by < 0 {
            request.charge(tokens).await?
        } else {
            request.credit(tokens).await?
        };
        Ok(BucketState::new(&rules, policy, &located, decision))
    }

    fn find(
        &self,
        policy: &str,
        subject: &Subject<'_>,
    ) -> Result<(Arc<Ruleset>, usize, Located), StateError> {
        let state = self.0.state.read();
        let index = state.rules.index(policy);
        let index = index.ok_or(StateError::UnknownPolicy)?;
        let located = self.locate(&state, index, subject)?;
        let located = located.ok_or(StateError::UnknownPolicy)?;
        Ok((Arc::clone(&state.rules), index, located))
    }

    /// Finds a subject's bucket under a policy; `None` if the policy does not apply to the subject's
    /// request.
    fn locate(
        &self,
        state: &State,
        index: usize,
        subject: &Subject<'_>,
    ) -> Result<Option<Located>, NoBucketError> {
        let rules = &state.rules;
        let assigned =
            |variant: &str, subject: &str| self.value_index(state, index, variant, subject);
        match &subject.request {
            None => rules.matcher.locate(index, subject, &assigned).map(Some),
            Some(request) => {
                let located = request.with_normal_path(|request| {
                    let rule = rules.policy(index).matching_rule(request)?;
                    let source = MatchedRequest { request, rule };
                    Some(rules.matcher.locate(index, &source, &assigned))
                });
                located.ok().flatten().transpose()
            }
        }
    }
}
