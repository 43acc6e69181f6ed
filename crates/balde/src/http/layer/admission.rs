//! From a request to its admission: find the buckets, decide, and admit or refuse.

use std::sync::Arc;

use ::http::{HeaderMap, Response};
use bytes::Bytes;

use super::bucket_request::{BucketRequests, Decisions, MissingKey};
use super::config::LimitRules;
use super::in_flight::{self, InFlight, LayerTicket};
use crate::decision::Decision;
use crate::http::identity::ClientKey;
use crate::http::pipeline::{Admission, Admit, Begun, Refusal, RequestParts};

/// The buckets of a request, and what their stores decided.
pub struct LayerDecision {
    buckets: BucketRequests,
    decisions: Decisions,
}

/// What becomes of a request.
type Admitted = Admission<LayerTicket>;

impl Admit for LimitRules {
    type Ticket = LayerTicket;
    type Decided = LayerDecision;

    /// This function is not generic, so that all of it is compiled and optimised in this crate.
    fn begin(self: &Arc<Self>, request: &RequestParts<'_>) -> Begun<LayerTicket, Self::Decided> {
        if self.options.is_exempt(request) {
            return Begun::Decided(Admission::Forward);
        }
        if self.takes_one_of_caller
            && let Some(admission) = take_one_of_caller(self, request)
        {
            return Begun::Decided(admission);
        }
        let buckets = match BucketRequests::new(self, request) {
            Ok(buckets) if buckets.as_slice().is_empty() => {
                return Begun::Decided(Admission::Forward);
            }
            Ok(buckets) => buckets,
            Err(missing) => {
                let response = refuse_missing_key(self, missing, request.headers());
                return Begun::Decided(Admission::Refused(Box::new(response)));
            }
        };
        if self.is_in_memory {
            let decisions = buckets.decide_now(self);
            return Begun::Decided(admit(self, buckets, decisions, request.headers()));
        }
        let config = Arc::clone(self);
        Begun::Deciding(Box::pin(async move {
            let decisions = buckets.decide(&config).await;
            LayerDecision { buckets, decisions }
        }))
    }

    fn admit(self: &Arc<Self>, decided: LayerDecision, headers: &HeaderMap) -> Admitted {
        admit(self, decided.buckets, decided.decisions, headers)
    }
}

/// Admits the request if all buckets granted it; otherwise builds the response of the refusal.
fn admit(
    config: &Arc<LimitRules>,
    buckets: BucketRequests,
    decisions: Decisions,
    request_headers: &HeaderMap,
) -> Admitted {
    if let Some(refused) = decisions.refused_index() {
        let named = buckets.named(config, decisions.as_slice());
        let refusal = Refusal::from_decisions(&named, refused, request_headers);
        let mut response = config.options.respond(&refusal);
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
    let in_flight = InFlight::new(config, buckets, decisions);
    Admission::Admitted(LayerTicket::in_flight(in_flight))
}

/// Takes one token from the bucket of a caller whose key fits registers: nearly all requests to
/// services that limit each address. Returns `None` if the caller has another key.
#[inline]
fn take_one_of_caller(config: &Arc<LimitRules>, request: &RequestParts<'_>) -> Option<Admitted> {
    let rule = &config.rules[0];
    let key = config.options.identity().short_key(request.extensions())?;
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
fn admit_unpriced(config: &Arc<LimitRules>, limit: usize, decision: &Decision) -> Option<Admitted> {
    if !decision.is_allowed() {
        return None;
    }
    if config.headers.is_empty() {
        return Some(Admission::Forward);
    }
    let values = config.writer.values(limit, decision)?;
    let ticket = LayerTicket::headers(Arc::clone(config), limit, values);
    Some(Admission::Admitted(ticket))
}

#[cold]
#[inline(never)]
fn admit_decided(
    config: &Arc<LimitRules>,
    buckets: BucketRequests,
    decision: &Decision,
    request: &RequestParts<'_>,
) -> Admitted {
    let decisions = Decisions::One(*decision);
    admit(config, buckets, decisions, request.headers())
}

/// Counts and logs that a request has no usable key, and returns the response of its refusal.
fn refuse_missing_key(
    config: &LimitRules,
    missing: MissingKey,
    request_headers: &HeaderMap,
) -> Response<Bytes> {
    let limiter = &config.rules[missing.rule].limiter;
    limiter.count_no_key();
    let refusal = Refusal::from_missing_key(limiter.name(), missing.error, request_headers);
    let why = missing.error.map(|error| error.to_string());
    let why = why.unwrap_or_else(|| "the key function of the limit returned none".to_owned());
    config
        .options
        .log_missing_key(&refusal, &why, limiter.now_us());
    config.options.respond(&refusal)
}
