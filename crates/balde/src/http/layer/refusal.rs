//! How a refusal is told.

use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;

use crate::decision::{Decision, Reason};
use crate::http::identity::IdentityError;
use crate::http::problem::{Problem, ProblemFormat};

/// Why a request was refused, for [`on_refusal`](super::RateLimitLayer::on_refusal).
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    cause: RefusalCause,
    policy: &'a str,
    retry_after: Option<Duration>,
    problem: Problem,
    request_headers: &'a HeaderMap,
}

/// What refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// A limit was reached, or more was request for than it can ever give: 429.
    Limit,
    /// The limiter could not ask its store, and its failure policy is to refuse: 503.
    Unavailable,
    /// The request has no usable key, for the reason that the identity gave; or the rule's own
    /// function gave none, or a bad one: 403.
    IdentityError(Option<IdentityError>),
}

impl<'a> Refusal<'a> {
    /// `parts` are all decisions with their limiters' names, and `refused` is the one to name.
    pub(super) fn of_decisions(
        parts: &[(&'a str, &Decision)],
        refused: usize,
        request_headers: &'a HeaderMap,
    ) -> Self {
        let (policy, decision) = parts[refused];
        Self {
            cause: match decision.reason() {
                Reason::StoreUnavailable(_) => RefusalCause::Unavailable,
                Reason::BadKey(_) => RefusalCause::IdentityError(None),
                Reason::Granted | Reason::OverLimit | Reason::OverCapacity => RefusalCause::Limit,
            },
            policy,
            retry_after: decision.retry_after(),
            problem: Problem::from_decisions(parts),
            request_headers,
        }
    }

    pub(super) fn of_keyless(
        policy: &'a str,
        why: Option<IdentityError>,
        request_headers: &'a HeaderMap,
    ) -> Self {
        Self {
            cause: RefusalCause::IdentityError(why),
            policy,
            retry_after: None,
            problem: Problem::of_no_key(why.unwrap_or(IdentityError::UnknownPeer)),
            request_headers,
        }
    }

    /// What refused it.
    pub const fn cause(&self) -> RefusalCause {
        self.cause
    }

    /// The name of the limiter that refused; where several did, of the one that will refuse
    /// longest.
    pub const fn policy(&self) -> &'a str {
        self.policy
    }

    /// How long until the same request would pass, if nobody else asks. Nothing where waiting does
    /// not help.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What it would be answered with.
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The header fields of the request: what it accepts, for instance.
    pub const fn request_headers(&self) -> &'a HeaderMap {
        self.request_headers
    }

    pub(super) fn answer(&self, format: ProblemFormat) -> Response<Bytes> {
        if is_grpc(self.request_headers) {
            return self.answer_grpc();
        }
        let mut response = Response::new(self.problem.body(format).into());
        *response.status_mut() = self.problem.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, format.content_type());
        response
    }

    /// A status of gRPC without a message: the status is in the header fields and there is no body.
    fn answer_grpc(&self) -> Response<Bytes> {
        let (status, message) = match self.problem.status() {
            StatusCode::TOO_MANY_REQUESTS => ("8", "rate limited"),
            StatusCode::SERVICE_UNAVAILABLE => ("14", "the rate limiter cannot decide now"),
            _ => ("7", "it cannot be told who sent the request"),
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert("grpc-status", HeaderValue::from_static(status));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        response
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
