//! Spans: one for each check, and one below it for the call to Redis. They are at level DEBUG under
//! the target `balde`, and are not made where nobody listens at that level.

use tracing::field::Empty;
use tracing::{Level, Span};

use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::StoreFailure;
use crate::joint::{MultiDecision, TokenRequest};
use crate::limiter::RateLimiter;

/// Whether anybody listens at the level of spans, to whatever.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::level_enabled!(Level::DEBUG)
}

/// The span of a check.
pub(crate) fn check(limiter: &RateLimiter, key: &[u8]) -> Span {
    if !is_on() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.check",
        strategy = super::strategy(&limiter.limit()),
        storage_mode = limiter.watch().mode().as_str(),
        policy = limiter.name(),
        key_hash = limiter.watch().hash(key).map(display),
        decision = Empty,
        reason = Empty,
        remaining = Empty,
        retry_after_ms = Empty,
    )
}

/// The span of a charge, a credit, or whatever else is no decision.
pub(crate) fn operation(limiter: &RateLimiter, key: &[u8], operation: &'static str) -> Span {
    if !is_on() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.operation",
        operation,
        strategy = super::strategy(&limiter.limit()),
        storage_mode = limiter.watch().mode().as_str(),
        policy = limiter.name(),
        key_hash = limiter.watch().hash(key).map(display),
    )
}

/// The call to the store, as a child of whatever asks.
#[cfg(feature = "redis")]
pub(crate) fn redis_call(buckets: usize) -> Span {
    if !is_on() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.redis",
        otel.kind = "client",
        storage_mode = "redis",
        buckets,
        outcome = Empty,
    )
}

/// Writes into the span of a call how it ended.
#[cfg(feature = "redis")]
pub(crate) fn answered(span: &Span, failure: Option<&StoreFailure>) {
    if !span.is_disabled() {
        span.record(
            "outcome",
            failure.map_or("answered", |failure| failure.as_str()),
        );
    }
}

/// Writes the answer into the span of a check.
pub(crate) fn answer(span: &Span, decision: &Decision) {
    if span.is_disabled() {
        return;
    }
    span.record("decision", super::verdict(decision));
    span.record("reason", super::reason(decision));
    span.record("remaining", decision.remaining());
    if let Some(ms) = super::retry_after_ms(decision) {
        span.record("retry_after_ms", ms);
    }
}

/// The spans of a decision over several buckets: one for the whole, and below it one for each
/// question. A single question has a span like any other check.
pub(crate) struct JointSpan {
    pub(crate) whole: Span,
    parts: Vec<Span>,
}

impl JointSpan {
    pub(crate) fn new(asks: &[TokenRequest<'_>]) -> Self {
        if !is_on() {
            return Self {
                whole: Span::none(),
                parts: Vec::new(),
            };
        }
        if let [only] = asks {
            let whole = check(only.limiter, only.key);
            let parts = vec![whole.clone()];
            return Self { whole, parts };
        }
        let whole = tracing::debug_span!(
            target: "balde",
            "rate_limiter.check_all",
            asks = asks.len(),
            decision = Empty,
            refused_by = Empty,
        );
        let part = |ask: &TokenRequest<'_>| whole.in_scope(|| check(ask.limiter, ask.key));
        Self {
            parts: asks.iter().map(part).collect(),
            whole,
        }
    }

    pub(crate) fn answer(&self, joint: &MultiDecision) {
        for (span, decision) in self.parts.iter().zip(joint.parts()) {
            answer(span, decision);
        }
        if self.parts.len() != 1 && !self.whole.is_disabled() {
            let verdict = if joint.is_allowed() { "allow" } else { "deny" };
            self.whole.record("decision", verdict);
            if let Some(name) = joint.refused_by() {
                self.whole.record("refused_by", name);
            }
        }
    }
}
