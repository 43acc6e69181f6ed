//! Spans of checks and other commands. They are at level DEBUG under the target `balde`, and are not
//! created where no subscriber listens at that level.

use balde_core::{Command, Limit};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::observer::Observer;
use crate::decision::Decision;

/// Returns whether any subscriber listens at the level of spans, to whatever target.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::level_enabled!(Level::DEBUG)
}

pub(super) fn check(observer: &Observer, limit: impl FnOnce() -> Limit, key: &[u8]) -> Span {
    if !is_on() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.check",
        strategy = super::strategy(&limit()),
        storage_mode = observer.mode().as_str(),
        policy = observer.policy(),
        key_hash = observer.hash(key).map(display),
        decision = Empty,
        reason = Empty,
        remaining = Empty,
        retry_after_ms = Empty,
    )
}

pub(super) fn command(
    observer: &Observer,
    limit: impl FnOnce() -> Limit,
    key: &[u8],
    command: Command,
) -> Span {
    if !is_on() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.operation",
        operation = super::operation(command),
        strategy = super::strategy(&limit()),
        storage_mode = observer.mode().as_str(),
        policy = observer.policy(),
        key_hash = observer.hash(key).map(display),
    )
}

/// Records the decision in the span of a check.
pub(crate) fn record(span: &Span, decision: &Decision) {
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
