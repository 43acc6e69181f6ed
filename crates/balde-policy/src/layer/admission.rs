//! Admits requests by an engine.

use std::sync::Arc;
use std::task::{Context, Poll};

use balde::http::{
    Admission, Admit, Begun, IdentityError, Outcome as HttpOutcome, Problem, Refusal, RefusalCause,
    RequestParts, RequestTicket,
};
use http::HeaderMap;

use super::{PolicyRules, add_retry_after};
use crate::engine::{Admission as EngineAdmission, AdmitError, Outcome, Settlement, Ticket};
use crate::http_headers::HttpHeaders;
use crate::policy::{KeyError, KeyPart, Request};

impl Admit for PolicyRules {
    type Ticket = PolicyTicket;
    type Decided = Decided;

    fn begin(self: &Arc<Self>, request: &RequestParts<'_>) -> Begun<PolicyTicket, Decided> {
        if self.options.is_exempt(request) {
            return Begun::Decided(Admission::Forward);
        }
        let received = request.uri().path();
        let normal = self.path_rules.normalized(received);
        let path = match &normal {
            Ok(path) => match self.engine.without_base(path) {
                Some(path) => path,
                None => return Begun::Decided(Admission::Forward),
            },
            // The engine refuses it, below a base path or not.
            Err(_) => received,
        };
        let (headers, extensions) = (request.headers(), request.extensions());
        let user = self.options.identity().key(headers, extensions);
        let user_id = user.as_ref().ok().map(AsRef::as_ref);
        let find = self.participant.as_ref();
        let participant = find.and_then(|find| find(headers, extensions));
        let query = request.uri().query().unwrap_or_default();
        let fields = HttpHeaders(headers);
        let mut parts = Request::new(request.method().as_str(), path, query);
        parts.path_rules = self.path_rules;
        parts.headers = &fields;
        parts.user = user_id.and_then(|user| std::str::from_utf8(user).ok());
        parts.participant = participant.as_deref();
        match self.engine.start(&parts) {
            EngineAdmission::Ready(admitted) => {
                let decided = Decided {
                    admitted,
                    no_user: user.err(),
                };
                Begun::Decided(self.admit(decided, headers))
            }
            EngineAdmission::Pending(admitting) => Begun::Deciding(Box::pin(async move {
                Decided {
                    admitted: admitting.await,
                    // A missing key is found before the store is asked.
                    no_user: None,
                }
            })),
        }
    }

    fn admit(self: &Arc<Self>, decided: Decided, headers: &HeaderMap) -> Admission<PolicyTicket> {
        match decided.admitted {
            Ok(ticket) => Admission::Admitted(PolicyTicket {
                rules: Arc::clone(self),
                state: State::Open(ticket),
            }),
            Err(error) => {
                let refusal = refusal(&error, decided.no_user, headers);
                if let AdmitError::NoBucket(error) = &error {
                    self.log_missing_key(&refusal, error);
                }
                let mut response = self.options.respond(&refusal);
                let decisions = match &error {
                    AdmitError::Refused(refused) => refused.decisions().collect(),
                    _ => Vec::new(),
                };
                self.write_headers(response.headers_mut(), &decisions);
                add_retry_after(response.headers_mut(), refusal.retry_after());
                Admission::Refused(Box::new(response))
            }
        }
    }
}

/// What the engine decided.
pub struct Decided {
    admitted: Result<Ticket, AdmitError>,
    /// Why the request has no user, if it has none.
    no_user: Option<IdentityError>,
}

fn refusal<'a>(
    error: &'a AdmitError,
    no_user: Option<IdentityError>,
    headers: &'a HeaderMap,
) -> Refusal<'a> {
    let (cause, policy, wait, problem) = match error {
        AdmitError::Refused(refused) => {
            let (policy, wait) = (refused.policy().name(), refused.retry_after());
            let problem = Problem::quota_exceeded([policy], wait);
            (RefusalCause::Limit, policy, wait, problem)
        }
        AdmitError::Unavailable(unavailable) => {
            let (policy, wait) = (unavailable.policy(), unavailable.retry_after());
            let problem = Problem::unavailable([policy], wait);
            (RefusalCause::Unavailable, policy, wait, problem)
        }
        AdmitError::Path(error) => {
            let problem = Problem::bad_request(error.to_string());
            (RefusalCause::InvalidPath, "", None, problem)
        }
        AdmitError::NoBucket(error) => {
            let part = KeyPart::User;
            let is_user = *error.key_error() == KeyError::Missing { part };
            let no_user = no_user.filter(|_| is_user);
            return Refusal::from_missing_key(error.policy(), no_user, headers);
        }
    };
    Refusal::new(cause, policy, wait, problem, headers)
}

/// An admitted request.
pub struct PolicyTicket {
    rules: Arc<PolicyRules>,
    state: State,
}

enum State {
    /// Dropping it settles it as abandoned.
    Open(Ticket),
    Settling(Settlement),
    Taken,
}

impl RequestTicket for PolicyTicket {
    fn settle(&mut self, outcome: &HttpOutcome<'_>) {
        let outcome = match outcome.status() {
            Some(status) => Outcome::Status(status.as_u16()),
            None => Outcome::Failed,
        };
        self.state = match std::mem::replace(&mut self.state, State::Taken) {
            State::Open(ticket) => State::Settling(ticket.settle(outcome)),
            settled => settled,
        };
    }

    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            State::Settling(settlement) => std::pin::Pin::new(settlement).poll(cx),
            State::Open(_) | State::Taken => Poll::Ready(()),
        }
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        if let State::Settling(settlement) = &self.state {
            let decisions: Vec<_> = settlement.decisions().collect();
            self.rules.write_headers(headers, &decisions);
        }
    }
}
