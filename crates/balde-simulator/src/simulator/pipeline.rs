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

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use balde_policy::{AdmitError, Outcome, PathRules, Refusal};
use bytes::Bytes;
use http::header::{ALLOW, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming as HyperBody;

use super::Simulator;
use super::answer::{Answer, Body};
use super::body::{has_body, read_body, read_request_body};
use super::handlers::{RequestContext, invalid_participant};
use super::lookups::LookupId;
use super::refusal_log::RefusalRecord;
use super::transcript::Exchange;
use crate::tls::ClientCertificate;
use crate::wire::{Element, Problem, XmlError, error_type_of};
use balde_dict::{
    Call, END_TO_END_ID_HEADER, HttpHeaders, Incoming, Operation, PARTICIPANT_HEADER, PAYER_HEADER,
    ParticipantFrom, RequestError, Route, RouteError,
};

/// `Retry-After` while a store is unavailable.
const UNAVAILABLE_RETRY_S: u64 = 1;

impl Simulator {
    /// Answers any request.
    pub(super) async fn serve(
        &self,
        request: Request<HyperBody>,
        certificate: Option<Arc<ClientCertificate>>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if parts.uri.path().starts_with("/sim/") || parts.uri.path() == "/sim" {
            let answer = match read_body(body).await {
                Ok(body) => self.inspect(&parts, &body).await,
                Err(answer) => answer,
            };
            return self.respond(answer, &parts.headers);
        }
        let routed = self.0.table.route(parts.method.as_str(), parts.uri.path());
        let route = match routed {
            Ok(route) => route,
            Err(error) => return self.not_routed(error, &parts.headers),
        };
        let body = match read_request_body(route.operation(), &parts, body).await {
            Ok(body) => body,
            Err(answer) => return self.respond(answer, &parts.headers),
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
                Err(error) => simulator.not_routed(error, &parts.headers),
            }
        });
        task.await.unwrap_or_else(|_| {
            let problem = Problem::new(500, "InternalServerError");
            self.respond(Answer::problem(problem), &HeaderMap::new())
        })
    }

    async fn process(
        &self,
        parts: &Parts,
        route: &Route<'_>,
        body: &Bytes,
        certificate: Option<&ClientCertificate>,
    ) -> Response<Body> {
        let begun = Instant::now();
        let operation = route.operation();
        let (participant, answer) = self.answer(parts, route, body, certificate).await;
        if let Some(transcript) = &self.0.transcript {
            let header = |name: &str| parts.headers.get(name).and_then(|own| own.to_str().ok());
            transcript.record(&Exchange {
                at: self.now(),
                operation,
                participant: participant.as_deref(),
                payer: header(PAYER_HEADER),
                end_to_end_id: header(END_TO_END_ID_HEADER),
                body,
                status: answer.status,
            });
        }
        tracing::debug!(
            operation = operation.as_str(),
            participant,
            status = answer.status,
            latency_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            "answered"
        );
        self.respond(answer, &parts.headers)
    }

    /// Writes and signs an answer.
    fn respond(&self, answer: Answer, headers: &HeaderMap) -> Response<Body> {
        let has_id = self.0.table.settings().problem_correlation_id;
        let correlation_id = || has_id.then(|| format!("{:032x}", fastrand::u128(..)));
        let answer = answer.with_problem_written(self.0.version.error_base(), correlation_id);
        self.sign(answer).into_response(headers)
    }

    /// The participant, if it is known, and the answer.
    async fn answer(
        &self,
        parts: &Parts,
        route: &Route<'_>,
        body: &Bytes,
        certificate: Option<&ClientCertificate>,
    ) -> (Option<String>, Answer) {
        if let Err(error) = self.follow().await {
            return (None, unavailable(&error.to_string()));
        }
        let operation = route.operation();
        if let (Some(participants), Some(certificate)) = (&self.0.participants, certificate)
            && participants.holder(certificate).is_none()
        {
            let problem = Problem::forbidden("The certificate belongs to no participant");
            return (None, Answer::problem(problem));
        }
        let document = has_body(operation).then(|| Element::read(body));
        let named = match &document {
            Some(Ok(root)) => operation.participant_in(root).map(str::to_owned),
            _ => None,
        };
        let headers = HttpHeaders(&parts.headers);
        let caller = self.caller(operation, &parts.headers, certificate);
        let inferred = match (&document, &named) {
            (Some(Ok(_)), None) if operation == Operation::UpdateEntry => {
                self.updating_participant(route, &parts.headers, certificate)
                    .await
            }
            _ => Ok(None),
        };
        let from_body = match inferred {
            Ok(inferred) => named.or(inferred),
            Err(problem) => return (None, Answer::problem(problem)),
        };
        let call = {
            let incoming = Incoming::new(parts.uri.query().unwrap_or_default(), &headers)
                .with_body_participant(from_body.as_deref())
                .with_certificate(caller.as_deref());
            self.0.table.resolve(route, &incoming)
        };
        let Some(participant) = call.participant() else {
            return (
                None,
                Answer::problem(not_resolved(&call, document.as_ref())),
            );
        };
        if let Err(problem) = self.check_speaker(operation, participant, certificate) {
            return (Some(participant.to_owned()), Answer::problem(problem));
        }
        let wrong = what_is_wrong(&call, document.as_ref());
        let is_free = |problem: &Problem| {
            let outcome = Outcome::Status(problem.status());
            let prices = self.0.buckets.engine().prices(&call.request(), outcome);
            prices.iter().all(|(_, price)| *price == 0)
        };
        let answer = match wrong {
            // A problem that costs nothing is answered without admission.
            Some(problem) if is_free(&problem) => Answer::problem(problem),
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
        let engine = self.0.buckets.engine();
        let mut admitted = engine.admit(&call.request()).await;
        if let Err(AdmitError::Path(_)) = admitted {
            // DICT counts by operation, however odd the id in its path is.
            let path = without_odd_segments(call.request().path);
            let mut request = call.request();
            request.path = &path;
            admitted = engine.admit(&request).await;
        }
        let ticket = match admitted {
            Ok(ticket) => ticket,
            Err(AdmitError::Refused(refusal)) => return self.refuse(call, context, &refusal),
            Err(error) => return unavailable(&error.to_string()),
        };
        let answer = match wrong {
            Some(problem) => Answer::problem(problem),
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
                let error_type = fault.error_type.as_deref();
                let error_type = error_type.unwrap_or_else(|| error_type_of(status));
                let problem = Problem::new(status, error_type);
                let retry_after = (status == 503).then_some(UNAVAILABLE_RETRY_S);
                return Answer::problem(problem).retry_after(retry_after);
            }
        }
        match self.handle(context).await {
            Ok(answer) => answer,
            Err(problem) => {
                let retry_after = (problem.status() == 503).then_some(UNAVAILABLE_RETRY_S);
                Answer::problem(problem).retry_after(retry_after)
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
        if let Some(transcript) = &self.0.transcript {
            let until_ms = context.now.ms() + wait_us.unwrap_or(0) / 1_000;
            let payer = call.payer();
            transcript.refused(context.operation, context.participant, payer, until_ms);
        }
        self.0.refusals.record(record, context.now.ms());
        let seconds = wait_us.map(|us| us.div_ceil(1_000_000).max(1));
        let seconds = seconds.filter(|_| self.0.table.settings().retry_after_on_429);
        Answer::problem(Problem::rate_limited()).retry_after(seconds)
    }

    /// The caller of an operation that need not name its participant: by its certificate, by the
    /// header, or else the default, unless certificates are required.
    fn caller<'h>(
        &'h self,
        operation: Operation,
        headers: &'h HeaderMap,
        certificate: Option<&'h ClientCertificate>,
    ) -> Option<Cow<'h, str>> {
        let is_needed = matches!(
            operation.participant(),
            ParticipantFrom::Certificate | ParticipantFrom::HeaderOrQuery
        );
        if !is_needed {
            return None;
        }
        let default = || {
            let may_infer = self.0.table.settings().infer_participant
                || operation.participant() == ParticipantFrom::Certificate;
            let default = may_infer.then_some(self.0.default_caller.as_str());
            default.filter(|_| certificate.is_none())
        };
        self.known_caller(headers, certificate)
            .or_else(|| default().map(Cow::Borrowed))
    }

    /// The participant that a certificate or the header names.
    fn known_caller<'h>(
        &'h self,
        headers: &'h HeaderMap,
        certificate: Option<&'h ClientCertificate>,
    ) -> Option<Cow<'h, str>> {
        let held = certificate.and_then(|certificate| match &self.0.participants {
            Some(participants) => participants.holder(certificate),
            None => certificate.ispb.as_deref(),
        });
        let header = headers.get(PARTICIPANT_HEADER);
        let header = header.and_then(|value| value.to_str().ok());
        held.or(header).map(Cow::Borrowed)
    }

    /// The participant of an updateEntry without an account: the caller, or else the holder of the key.
    async fn updating_participant(
        &self,
        route: &Route<'_>,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Option<String>, Problem> {
        if !self.0.table.settings().infer_participant {
            return Ok(None);
        }
        if let Some(caller) = self.known_caller(headers, certificate) {
            return Ok(Some(caller.into_owned()));
        }
        let Some(key) = balde_policy::percent_decoded(route.raw_segment()) else {
            return Ok(None);
        };
        let found = self.0.directory.entry(&key).await;
        let found = found.map_err(|error| Problem::unavailable(error.to_string()))?;
        let holder = found.map(|record| record.entry.account.participant.clone());
        Ok(Some(
            holder.unwrap_or_else(|| self.0.default_caller.clone()),
        ))
    }

    /// Checks that the caller may speak for a participant, if the participants are known.
    fn check_speaker(
        &self,
        operation: Operation,
        participant: &str,
        certificate: Option<&ClientCertificate>,
    ) -> Result<(), Problem> {
        let Some(participants) = &self.0.participants else {
            return Ok(());
        };
        if certificate.is_some_and(|certificate| !participants.covers(certificate, participant)) {
            let detail = "The certificate may not act for this participant";
            return Err(Problem::forbidden(detail));
        }
        if !participants.contains(participant) {
            return Err(if operation.participant() == ParticipantFrom::Body {
                let detail = "There is no such participant";
                Problem::new(400, "ParticipantInvalid").with_detail(detail)
            } else {
                Problem::forbidden("There is no such participant")
            });
        }
        Ok(())
    }

    fn sign(&self, answer: Answer) -> Answer {
        let Some(signer) = self.0.signer.as_ref().filter(|_| answer.is_signed()) else {
            return answer;
        };
        match signer.sign(answer.body().to_owned()) {
            Ok(signed) => answer.with_body(signed),
            Err(error) => {
                tracing::error!(%error, "a response could not be signed");
                let problem = Problem::new(500, "InternalServerError");
                let answer = Answer::problem(problem);
                answer.with_problem_written(self.0.version.error_base(), || None)
            }
        }
    }

    fn not_routed(&self, error: RouteError, headers: &HeaderMap) -> Response<Body> {
        let problem = Problem::new(error.status(), error.error_type());
        let problem = problem.with_detail(error.to_string());
        let mut response = self.respond(Answer::problem(problem), headers);
        if let RouteError::MethodNotAllowed { allow } = error {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// What is wrong with a request whose participant is unknown.
fn not_resolved(call: &Call<'_>, document: Option<&Result<Element, XmlError>>) -> Problem {
    match (document, call.error()) {
        (Some(Err(error)), _) => Problem::bad_request(error.to_string()),
        (Some(Ok(root)), Some(RequestError::InvalidParticipant)) => {
            invalid_participant(call.operation(), root)
        }
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

fn unavailable(detail: &str) -> Answer {
    Answer::problem(Problem::unavailable(detail)).retry_after(Some(UNAVAILABLE_RETRY_S))
}

/// The path with a placeholder for each segment that the engine refuses to compare.
fn without_odd_segments(path: &str) -> String {
    let segment = |segment: &str| {
        let is_odd = PathRules::default()
            .normalized(&format!("/{segment}"))
            .is_err();
        if is_odd { "-" } else { segment }.to_owned()
    };
    let segments: Vec<String> = path.split('/').map(segment).collect();
    segments.join("/")
}
