//! Why a request was not admitted: a limit, a store that could not be reached, or a request that
//! has no bucket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde::{Decision, StoreFailure, Wait};
use thiserror::Error;

use super::matching::NoBucketError;
use super::ruleset::Ruleset;
use crate::path::PathError;
use crate::policy::Policy;

/// Why a request was not admitted. Nothing was taken from any bucket.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// A bucket has too few tokens.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The store could not be reached, and the policy's `on_failure` is `deny`.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    /// A policy applies to the request, but the request lacks a part of the bucket's key.
    #[error(transparent)]
    NoBucket(#[from] NoBucketError),
    /// Servers read the request's path in different ways.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A request that was refused because a bucket has too few tokens. If several buckets refused, this
/// is about the one with the longest wait.
#[derive(Clone)]
pub struct Refusal {
    pub(super) rules: Arc<Ruleset>,
    pub(super) policy: usize,
    pub(super) decision: Decision,
    /// The decisions of all enforced policies.
    pub(super) decisions: Vec<(usize, Decision)>,
}

impl Refusal {
    /// The policy that refused.
    pub fn policy(&self) -> &Policy {
        self.rules.policy(self.policy)
    }

    /// The tokens that are available in the bucket that refused; negative is debt.
    pub fn level(&self) -> i64 {
        self.decision.level()
    }

    /// How long until the same request would be admitted, if no other request takes from the
    /// bucket.
    pub fn wait(&self) -> Wait {
        self.decision.wait()
    }

    /// [`wait`](Refusal::wait) as a duration; `None` if the request will never be admitted.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after()
    }

    /// The decision of the bucket that refused.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The decisions of all enforced policies that apply to the request, with the policies' names.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = (&str, &Decision)> {
        let decisions = self.decisions.iter();
        decisions.map(|(policy, decision)| (self.rules.policy(*policy).name(), decision))
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal")
            .field("policy", &self.policy().name())
            .field("level", &self.level())
            .field("wait", &self.wait())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, level) = (self.policy().name(), self.level());
        match self.retry_after() {
            Some(wait) => write!(f, "policy {name} refused: level {level}, retry in {wait:?}"),
            None => write!(f, "policy {name} refused: it never admits this request"),
        }
    }
}

/// The store of a policy's buckets could not be reached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("policy {policy}: {failure}")]
pub struct Unavailable {
    pub(super) policy: Box<str>,
    pub(super) failure: StoreFailure,
    pub(super) retry_after: Option<Duration>,
}

impl Unavailable {
    /// The name of the policy whose store failed.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// What went wrong.
    pub fn failure(&self) -> StoreFailure {
        self.failure
    }

    /// The time until the store is tried again, if that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}
