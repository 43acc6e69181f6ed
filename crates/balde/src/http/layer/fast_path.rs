//! The common case, made short: one limit in memory, for each caller or for everybody, and no hook.
//!
//! It decides what the long way through [`BucketRequests`] and [`InFlight`](super::in_flight::InFlight)
//! would decide, and leaves to it whatever needs more than letting a request in and telling how its
//! caller stands. A test holds the two ways together: `tests/layer/plain.rs`.

use ::http::{Extensions, HeaderMap};

use super::bucket_request::{Decisions, Key, BucketRequests};
use super::limit_rule::{LimitRule, KeyScope, KeySource};
use super::config::LayerConfig;
use crate::decision::Decision;
use crate::http::headers::FieldValues;
use crate::http::identity::ClientKey;
use crate::limiter::Place;

/// What became of a request.
pub(super) enum FastPath {
    /// It is let in, and its caller is told this, if anything.
    Admitted(Option<FieldValues>),
    /// It is decided, and there is more to say than values.
    Decided(Box<(BucketRequests, Decisions)>),
    /// Nobody was request: there is no key.
    NoKey,
}

/// KeySource bucket [`ask`] asks, where it knows all that is to be request.
pub(super) fn scope(config: &LayerConfig) -> Option<KeyScope> {
    let [
        LimitRule {
            limiter,
            source: KeySource::Scope(usual),
            cost: None,
            applies: None,
            price: None,
        },
    ] = &*config.rules
    else {
        return None;
    };
    let is_in_memory = matches!(limiter.place(), Place::Memory(..));
    (is_in_memory && config.exempt.is_none()).then_some(*usual)
}

/// Asks the only limit for one token.
///
/// Not generic, so that all of it is compiled and optimised together, in this crate.
pub(super) fn ask(
    config: &LayerConfig,
    source: KeyScope,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> FastPath {
    let limiter = &config.rules[0].limiter;
    if let KeyScope::Caller = source
        && let Some(key) = config.identity.short_key(extensions)
    {
        return limiter.take_one_short(&key, |decision| {
            told(config, decision).unwrap_or_else(|| {
                decided(*decision, Key::Client(ClientKey::of_short_address(key)))
            })
        });
    }
    let Ok(key) = source.key(config, headers, extensions) else {
        return FastPath::NoKey;
    };
    let decision = limiter.blocking().check(key.as_bytes());
    told(config, &decision).unwrap_or_else(|| decided(decision, key))
}

/// Lets a request in, where values are all that there is to say.
#[inline]
fn told(config: &LayerConfig, decision: &Decision) -> Option<FastPath> {
    if !decision.is_allowed() {
        return None;
    }
    if config.headers.are_none() {
        return Some(FastPath::Admitted(None));
    }
    let values = config.writer.values(decision)?;
    Some(FastPath::Admitted(Some(values)))
}

#[cold]
#[inline(never)]
fn decided(decision: Decision, key: Key) -> FastPath {
    let decided = (BucketRequests::only(1, key), Decisions::One(decision));
    FastPath::Decided(Box::new(decided))
}
