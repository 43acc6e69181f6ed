//! From a request to its admission: find the buckets, decide, and admit or refuse.

use std::sync::Arc;

use ::http::{HeaderMap, Response};
use bytes::Bytes;

use super::bucket_request::{BucketRequests, Decisions, MissingKey};
use super::config::LayerConfig;
use super::in_flight::{self, InFlight};
use super::refusal::Refusal;
use super::request_parts::RequestParts;
use crate::decision::Decision;
use crate::http::headers::FieldValues;
use crate::http::identity::ClientKey;

/// What becomes of a request, as far as that is known without waiting for a store.
pub(super) enum Admission {
    /// The request is not limited, or nothing is left to do after its response.
    Forward,
    /// The request is admitted, and its response gets the header fields of one limit.
    AddHeaders {
        /// The index of the limit.
        limit: usize,
        values: FieldValues,
    },
    /// The request is admitted, and has to be settled or gets the header fields of several limits.
    Admitted(Box<InFlight>),
    Refused(Box<Response<Bytes>>),
    /// A store has to be asked.
    Undecided(Box<BucketRequests>),
}

/// Decides on a request as far as that is possible without waiting.
///
/// This function is not generic, so that all of it is compiled and optimised in this crate.
pub(super) fn begin(config: &Arc<LayerConfig>, request: &RequestParts<'_>) -> Admission {
    if config.exempt.as_ref().is_some_and(|exempt| exempt(request)) {
        return Admission::Forward;
    }
    if config.takes_one_of_caller
        && let Some(admission) = take_one_of_caller(config, request)
    {
        return admission;
    }
    let buckets = match BucketRequests::new(config, request) {
        Ok(buckets) if buckets.as_slice().is_empty() => return Admission::Forward,
        Ok(buckets) => buckets,
        Err(missing) => {
            let response = refuse_missing_key(config, missing, request.headers());
            return Admission::Refused(Box::new(response));
        }
    };
    if !config.is_in_memory {
        return Admission::Undecided(Box::new(buckets));
    }
    let decisions = buckets.decide_now(config);
    admit(config, buckets, decisions, request.headers())
}

/// Admits the request if all buckets granted it; otherwise builds the response of the refusal.
pub(super) fn admit(
    config: &Arc<LayerConfig>,
    buckets: BucketRequests,
    decisions: Decisions,
    request_headers: &HeaderMap,
) -> Admission {
    if let Some(refused) = decisions.refused_index() {
        let named = buckets.named(config, decisions.as_slice());
        let refusal = Refusal::from_decisions(&named, refused, request_headers);
        let mut response = respond(config, &refusal);
        let headers = response.headers_mut();
        in_flight::write_headers(config, &buckets, decisions.as_slice(), headers);
        return Admission::Refused(Box::new(response));
    }
    if !config.is_priced
        && let (Decisions::One(decision), [bucket]) = (&decisions, buckets.as_slice())
        && let Some(admission) = admit_unpriced(config, bucket.rule, decision)
    {
        return admission;
    }
    if !config.is_priced && config.headers.is_empty() {
        return Admission::Forward;
    }
    Admission::Admitted(Box::new(InFlight::new(config, buckets, decisions)))
}

/// Takes one token from the bucket of a caller whose key fits registers: nearly all requests to
/// services that limit each address. Returns `None` if the caller has another key.
#[inline]
fn take_one_of_caller(config: &Arc<LayerConfig>, request: &RequestParts<'_>) -> Option<Admission> {
    let rule = &config.rules[0];
    let key = config.identity.short_key(request.extensions())?;
    if rule.filter.as_ref().is_some_and(|filter| !filter(request)) {
        return Some(Admission::Forward);
    }
    Some(rule.limiter.take_one_short(&key, |decision| {
        let admission = admit_unpriced(config, 0, decision);
        admission.unwrap_or_else(|| {
            let buckets = BucketRequests::of_caller(ClientKey::from_short_address(key));
            admit_decided(config, buckets, decision, request)
        })
    }))
}

/// Returns `None` if the response needs more than forwarding the request and adding header fields.
#[inline]
fn admit_unpriced(config: &LayerConfig, limit: usize, decision: &Decision) -> Option<Admission> {
    if !decision.is_allowed() {
        return None;
    }
    if config.headers.is_empty() {
        return Some(Admission::Forward);
    }
    let values = config.writer.values(limit, decision)?;
    Some(Admission::AddHeaders { limit, values })
}

#[cold]
#[inline(never)]
fn admit_decided(
    config: &Arc<LayerConfig>,
    buckets: BucketRequests,
    decision: &Decision,
    request: &RequestParts<'_>,
) -> Admission {
    let decisions = Decisions::One(*decision);
    admit(config, buckets, decisions, request.headers())
}

/// Counts and logs that a request has no usable key, and returns the response of its refusal.
fn refuse_missing_key(
    config: &LayerConfig,
    missing: MissingKey,
    request_headers: &HeaderMap,
) -> Response<Bytes> {
    let limiter = &config.rules[missing.rule].limiter;
    limiter.count_no_key();
    config.no_key_log.write(limiter, missing.error);
    let refusal = Refusal::from_missing_key(limiter.name(), missing.error, request_headers);
    respond(config, &refusal)
}

fn respond(config: &LayerConfig, refusal: &Refusal<'_>) -> Response<Bytes> {
    if let Some(on_refusal) = &config.on_refusal {
        return on_refusal(refusal);
    }
    let problem = refusal.problem();
    let response = problem.to_response(refusal.request_headers(), config.format);
    response.map(Bytes::from)
}
