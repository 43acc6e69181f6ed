//! The fast path: one limit in memory, per caller or global, without any closure.
//!
//! It gives the same decisions as the general path through [`BucketRequests`] and
//! [`InFlight`](super::in_flight::InFlight), and hands over to that path whatever needs more than
//! forwarding the request and adding header fields. `tests/layer/fast_path.rs` property-tests that
//! both paths give the same responses.

use ::http::{Extensions, HeaderMap};

use super::bucket_request::{BucketKey, BucketRequests, Decisions};
use super::config::LayerConfig;
use super::limit_rule::KeyScope;
use crate::decision::Decision;
use crate::http::headers::FieldValues;
use crate::http::identity::ClientKey;

/// What the fast path decided.
pub(super) enum FastPath {
    /// The request is admitted; its response gets these header fields, if any.
    Admitted(Option<FieldValues>),
    /// The decision is made, but the response needs the general path.
    Decided(Box<(BucketRequests, Decisions)>),
    /// There is no key, so no decision was made.
    NoKey,
}

/// Takes one token from the bucket of the only rule.
///
/// This function is not generic, so that all of it is compiled and optimised in this crate.
pub(super) fn decide(
    config: &LayerConfig,
    scope: KeyScope,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> FastPath {
    let limiter = &config.rules[0].limiter;
    if let KeyScope::Caller = scope
        && let Some(key) = config.identity.short_key(extensions)
    {
        return limiter.take_one_short(&key, |decision| {
            admitted(config, decision).unwrap_or_else(|| {
                decided(
                    *decision,
                    BucketKey::Client(ClientKey::from_short_address(key)),
                )
            })
        });
    }
    let Ok(key) = scope.key(config, headers, extensions) else {
        return FastPath::NoKey;
    };
    let decision = limiter.blocking().check(key.as_bytes());
    admitted(config, &decision).unwrap_or_else(|| decided(decision, key))
}

/// Returns `None` if the response needs the general path.
#[inline]
fn admitted(config: &LayerConfig, decision: &Decision) -> Option<FastPath> {
    if !decision.is_allowed() {
        return None;
    }
    if config.headers.is_empty() {
        return Some(FastPath::Admitted(None));
    }
    let values = config.writer.values(decision)?;
    Some(FastPath::Admitted(Some(values)))
}

#[cold]
#[inline(never)]
fn decided(decision: Decision, key: BucketKey) -> FastPath {
    let decided = (BucketRequests::single(1, key), Decisions::One(decision));
    FastPath::Decided(Box::new(decided))
}
