//! The processing of a request:
//!
//! 1. route: which operation is it?
//! 2. read: the body, within its limit, as XML
//! 3. resolve: the participant, the payer, and what is wrong with the request
//! 4. admit: the policy engine takes from every bucket, or the answer is 429
//! 5. handle: the operation, or an injected fault
//! 6. settle: every bucket by the status, once
//! 7. answer, with a line in the log
//!
//! A request without a known participant (no such path, no participant, unreadable XML) touches no
//! bucket. From then on every status has the price in the profile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use balde_policy::{AdmitError, Outcome, Refusal};
use bytes::Bytes;
use http::header::{ALLOW, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming as HyperBody;

use super::Simulator;
use super::answer::{Answer, Body};
use super::body::{has_body, read_body, read_request_body};
use super::handlers::RequestContext;
use super::lookups::LookupId;
use super::refusal_log::RefusalRecord;
use crate::wire::{Element, Problem, XmlError};
use crate::{
    Call, HttpHeaders, Incoming, Operation, PARTICIPANT_HEADER, ParticipantFrom, Route, RouteError,
};

/// `Retry-After` while a store is unavailable.
const UNAVAILABLE_RETRY_S: u64 = 1;

impl Simulator {
    /// Answers any request.
    pub(super) async fn serve(
        &self,
        request: Request<HyperBody>,
        certificate: Option<Arc<str>>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if parts.uri.path().starts_with("/sim/") || parts.uri.path() == "/sim" {
            let answer = match read_body(body).await {
                Ok(body) => self.inspect(&parts, &body).await,
                Err(answer) => answer,
            };
            return answer.into_response(&parts.headers);
        }
        let routed = self.0.table.route(parts.method.as_str(), parts.uri.path());
        let route = match routed {
            Ok(route) => route,
            Err(error) => return not_routed(error, &parts.headers),
        };
        let body = match read_request_body(route.operation(), &parts, body).await {
            Ok(body) => body,
            Err(answer) => return answer.into_response(&parts.headers),
        };
        // A request that waits for something must be settled even if the client disconnects
        // meanwhile.
        let waits = self.0.shared.is_some() || !self.0.buckets.runtime().faults.is_empty();
        if !waits {
            return self
                .process(&parts, &route, &body, certificate.as_deref())
                .await;
        }
        let simulator = self.clone();
        let task = tokio::spawn(async move {
            // It was routed a moment ago.
            let routed = simulator
                .0
                .table
                .route(parts.method.as_str(), parts.uri.path());
            match routed {
                Ok(route) => {
                    simulator
                        .process(&parts, &route, &body, certificate.as_deref())
                        .await
                }
                Err(error) => not_routed(error, &parts.headers),
            }
        });
        task.await.unwrap_or_else(|_| {
            let problem = Problem::new(500, "InternalServerError");
            Answer::problem(&problem).into_response(&HeaderMap::new())
        })
    }

    async fn process(
        &self,
        parts: &Parts,
        route: &Route<'_>,
        body: &Bytes,
        certificate: Option<&str>,
    ) -> Response<Body> {
        let begun = Instant::now();
        let operation = route.operation();
        let (participant, answer) = self.answer(parts, route, body, certificate).await;
        tracing::debug!(
            operation = operation.as_str(),
            participant,
            status = answer.status,
            latency_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            "answered"
        );
        self.sign(answer).into_response(&parts.headers)
    }

    /// The participant, if it is known, and the answer.
    async fn answer(
        &self,
        parts: &Parts,
        route: &Route<'_>,
        body: &Bytes,
        certificate: Option<&str>,
    ) -> (Option<String>, Answer) {
        if let Err(error) = self.follow().await {
            return (None, unavailable(&error.to_string()));
        }
        let operation = route.operation();
        let document = has_body(operation).then(|| Element::read(body));
        let from_body = match &document {
            Some(Ok(root)) => operation.participant_in(root),
            _ => None,
        };
        let headers = HttpHeaders(&parts.headers);
        let certificate = match operation.participant() {
            ParticipantFrom::Certificate => certificate.or_else(|| self.caller(&parts.headers)),
            _ => certificate,
        };
        let call = {
            let incoming = Incoming::new(parts.uri.query().unwrap_or_default(), &headers)
                .with_body_participant(from_body)
                .with_certificate(certificate);
            self.0.table.resolve(route, &incoming)
        };
        let Some(participant) = call.participant() else {
            return (
                None,
                Answer::problem(&not_resolved(&call, document.as_ref())),
            );
        };
        let wrong = what_is_wrong(&call, document.as_ref());
        let is_free = |problem: &Problem| {
            let outcome = Outcome::Status(problem.status());
            let prices = self.0.buckets.engine().prices(&call.request(), outcome);
            prices.iter().all(|(_, price)| *price == 0)
        };
        let answer = match wrong {
            // A problem that costs nothing is answered without admission.
            Some(problem) if is_free(&problem) => Answer::problem(&problem),
            wrong => {
                let now = self.now();
                let context = RequestContext {
                    operation,
                    participant,
                    segment: route.raw_segment(),
                    query: parts.uri.query().unwrap_or_default(),
                    host: parts.headers.get(http::header::HOST),
                    key: call.key(),
                    root: document.as_ref().and_then(|root| root.as_ref().ok()),
                    body,
                    now,
                    head: Self::head(now),
                };
                self.count(&call, &context, wrong).await
            }
        };
        (Some(participant.to_owned()), answer)
    }

    /// Admits a request, handles it and settles it.
    async fn count(
        &self,
        call: &Call<'_>,
        context: &RequestContext<'_>,
        wrong: Option<Problem>,
    ) -> Answer {
        let admitted = self.0.buckets.engine().admit(&call.request()).await;
        let ticket = match admitted {
            Ok(ticket) => ticket,
            Err(AdmitError::Refused(refusal)) => return self.refuse(call, context, &refusal),
            Err(error) => return unavailable(&error.to_string()),
        };
        let answer = match wrong {
            Some(problem) => Answer::problem(&problem),
            None => self.handle_or_fail(context).await,
        };
        let status = answer.status;
        ticket.settle(Outcome::Status(status)).await;
        let is_credited = self.0.table.settings().credit_statuses.contains(&status);
        if let (Operation::GetEntry, true, Some(payer), Some(end_to_end_id), Some(key)) = (
            context.operation,
            is_credited,
            call.payer(),
            call.end_to_end_id(),
            call.key(),
        ) {
            let id = LookupId {
                participant: context.participant,
                payer,
                end_to_end_id,
            };
            if let Err(error) = self.0.lookups.note(id, key, context.now).await {
                tracing::warn!(%error, "a lookup was not recorded and cannot be credited");
            }
        }
        answer
    }

    async fn handle_or_fail(&self, context: &RequestContext<'_>) -> Answer {
        let fault = self.0.buckets.runtime().fault(context.operation.as_str());
        if let Some(fault) = fault {
            if fault.latency_ms > 0 {
                tokio::time::sleep(Duration::from_millis(fault.latency_ms)).await;
            }
            if let Some(status) = fault.status {
                let problem = Problem::new(status, error_type(status));
                let retry_after = (status == 503).then_some(UNAVAILABLE_RETRY_S);
                return Answer::problem(&problem).retry_after(retry_after);
            }
        }
        match self.handle(context).await {
            Ok(answer) => answer,
            Err(problem) => {
                let retry_after = (problem.status() == 503).then_some(UNAVAILABLE_RETRY_S);
                Answer::problem(&problem).retry_after(retry_after)
            }
        }
    }

    fn refuse(&self, call: &Call<'_>, context: &RequestContext<'_>, refusal: &Refusal) -> Answer {
        let policy = refusal.policy();
        let wait_us = refusal.retry_after().map(|wait| wait.as_micros());
        let wait_us = wait_us.and_then(|us| u64::try_from(us).ok());
        let index = self.0.table.policy_index(policy.name());
        let is_per_payer = index.is_some_and(|index| self.0.buckets.is_per_payer(index));
        let record = RefusalRecord {
            at: context.now.to_string(),
            operation: context.operation.as_str(),
            participant: context.participant.to_owned(),
            payer: call.payer().filter(|_| is_per_payer).map(str::to_owned),
            policy: policy.name().to_owned(),
            scope: policy.scope().name().to_owned(),
            level: refusal.level(),
            retry_after_ms: wait_us.map(|us| us.div_ceil(1_000)),
        };
        self.0.refusals.record(record, context.now.ms());
        let seconds = wait_us.map(|us| us.div_ceil(1_000_000).max(1));
        let seconds = seconds.filter(|_| self.0.table.settings().retry_after_on_429);
        Answer::problem(&Problem::rate_limited()).retry_after(seconds)
    }

    /// The participant of a request without a certificate.
    fn caller<'h>(&'h self, headers: &'h HeaderMap) -> Option<&'h str> {
        let header = headers.get(PARTICIPANT_HEADER);
        let header = header.and_then(|value| value.to_str().ok());
        header.or(self.0.check_keys_participant.as_deref())
    }

    fn sign(&self, answer: Answer) -> Answer {
        let Some(signer) = self.0.signer.as_ref().filter(|_| answer.is_document()) else {
            return answer;
        };
        match signer.sign(answer.body().to_owned()) {
            Ok(signed) => answer.with_body(signed),
            Err(error) => {
                tracing::error!(%error, "a response could not be signed");
                Answer::problem(&Problem::new(500, "InternalServerError"))
            }
        }
    }
}

/// What is wrong with a request whose participant is unknown.
fn not_resolved(call: &Call<'_>, document: Option<&Result<Element, XmlError>>) -> Problem {
    match (document, call.error()) {
        (Some(Err(error)), _) => Problem::bad_request(error.to_string()),
        (_, Some(error)) => {
            Problem::new(error.status(), error.error_type()).with_detail(error.detail())
        }
        (_, None) => Problem::bad_request("The participant is unknown"),
    }
}

/// The first problem of a request before its operation is carried out, if there is one.
fn what_is_wrong(call: &Call<'_>, document: Option<&Result<Element, XmlError>>) -> Option<Problem> {
    if let Some(Err(error)) = document {
        return Some(Problem::bad_request(error.to_string()));
    }
    let error = call.error()?;
    Some(Problem::new(error.status(), error.error_type()).with_detail(error.detail()))
}

fn not_routed(error: RouteError, headers: &HeaderMap) -> Response<Body> {
    let problem = Problem::new(error.status(), error.error_type()).with_detail(error.to_string());
    let mut response = Answer::problem(&problem).into_response(headers);
    if let RouteError::MethodNotAllowed { allow } = error {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(allow));
    }
    response
}

fn unavailable(detail: &str) -> Answer {
    Answer::problem(&Problem::unavailable(detail)).retry_after(Some(UNAVAILABLE_RETRY_S))
}

/// DICT's error type for the status of an injected fault.
fn error_type(status: u16) -> &'static str {
    match status {
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Gone",
        429 => "RateLimited",
        503 => "ServiceUnavailable",
        500..=599 => "InternalServerError",
        _ => "BadRequest",
    }
}
