//! Admits a request after the decision, or builds the response of its refusal.

use std::sync::Arc;

use ::http::{Request, Response};
use bytes::Bytes;

use super::bucket_request::{BucketRequests, Decisions, MissingKey};
use super::config::LayerConfig;
use super::in_flight::{self, InFlight};
use super::refusal::Refusal;

/// Admits the request if all buckets granted it; otherwise returns the response of the refusal.
pub(super) fn admit<A>(
    config: &Arc<LayerConfig>,
    buckets: BucketRequests,
    decisions: Decisions,
    request: &Request<A>,
) -> Result<Option<Box<InFlight>>, Box<Response<Bytes>>> {
    let Some(refused) = decisions.refused_index() else {
        return Ok(InFlight::new(config, buckets, decisions));
    };
    let named = buckets.named(config, decisions.as_slice());
    let refusal = Refusal::from_decisions(&named, refused, request.headers());
    let mut response = respond(config, &refusal);
    let headers = response.headers_mut();
    in_flight::write_headers(config, &buckets, decisions.as_slice(), headers);
    Err(Box::new(response))
}

/// Counts and logs that a request has no usable key, and returns the response of its refusal.
pub(super) fn refuse_missing_key<A>(
    config: &LayerConfig,
    missing: MissingKey,
    request: &Request<A>,
) -> Response<Bytes> {
    let limiter = &config.rules[missing.rule].limiter;
    limiter.count_no_key();
    config.no_key_log.write(limiter, missing.error);
    let refusal = Refusal::from_missing_key(limiter.name(), missing.error, request.headers());
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
