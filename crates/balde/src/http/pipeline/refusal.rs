//! Why a request was refused.

use std::time::Duration;

use ::http::HeaderMap;

use crate::decision::{Decision, Reason};
use crate::http::identity::IdentityError;
use crate::http::problem::Problem;

/// A refused request: the cause, the limit that refused it and the problem document that describes
/// it. Passed to the closure of
/// [`RateLimitLayer::on_refusal`](crate::http::RateLimitLayer::on_refusal).
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    cause: RefusalCause,
    policy: &'a str,
    retry_after: Option<Duration>,
    problem: Problem,
    request_headers: &'a HeaderMap,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The bucket has too few tokens, or the request needs more than its capacity: 429.
    Limit,
    /// The store is unavailable and the limiter is configured to deny in that case: 503.
    Unavailable,
    /// The request has no usable key: 403. Carries the error from the
    /// [`Identity`](crate::http::Identity), or `None` if a rule's own key function returned no key
    /// or an invalid one.
    MissingKey(Option<IdentityError>),
    /// The service does not provide the address of its peers
    /// ([`IdentityError::UnknownPeer`]): 500.
    MissingPeer,
    /// Servers read the request's path in different ways: 400. Only where rules compare paths.
    InvalidPath,
}

impl<'a> Refusal<'a> {
    /// Creates a refusal by the limit `policy`, with the problem document that describes it.
    pub const fn new(
        cause: RefusalCause,
        policy: &'a str,
        retry_after: Option<Duration>,
        problem: Problem,
        request_headers: &'a HeaderMap,
    ) -> Self {
        Self {
            cause,
            policy,
            retry_after,
            problem,
            request_headers,
        }
    }

    /// `named` holds all decisions with the names of their limiters; `refused` is the index of the
    /// one to report.
    pub(crate) fn from_decisions(
        named: &[(&'a str, &Decision)],
        refused: usize,
        request_headers: &'a HeaderMap,
    ) -> Self {
        let (policy, decision) = named[refused];
        let cause = match decision.reason() {
            Reason::StoreUnavailable(_) => RefusalCause::Unavailable,
            Reason::BadKey(_) => RefusalCause::MissingKey(None),
            Reason::Granted | Reason::OverLimit | Reason::OverCapacity => RefusalCause::Limit,
        };
        let problem = Problem::from_decisions(named);
        let retry_after = decision.retry_after();
        Self::new(cause, policy, retry_after, problem, request_headers)
    }

    /// A refusal because the request has no usable key. `error` is the identity's, or `None` if the
    /// request lacks another part.
    pub fn from_missing_key(
        policy: &'a str,
        error: Option<IdentityError>,
        request_headers: &'a HeaderMap,
    ) -> Self {
        let (cause, problem) = match error {
            Some(IdentityError::UnknownPeer) => {
                (RefusalCause::MissingPeer, Problem::missing_peer())
            }
            error => (RefusalCause::MissingKey(error), Problem::missing_key()),
        };
        Self::new(cause, policy, None, problem, request_headers)
    }

    /// Why the request was refused.
    pub const fn cause(&self) -> RefusalCause {
        self.cause
    }

    /// The name of the limiter that refused. If several did, the one with the longest wait.
    pub const fn policy(&self) -> &'a str {
        self.policy
    }

    /// How long until the same request would be admitted, if no other request takes tokens in the
    /// meantime. `None` if waiting does not help.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The problem document that the layer sends by default.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The header fields of the request, for example `Accept`.
    pub const fn request_headers(&self) -> &'a HeaderMap {
        self.request_headers
    }
}
