//! Spans of checks and other commands. They are at level DEBUG under the target `balde`, and are not
//! created where no subscriber listens at that level.

use balde_core::{Command, Limit};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::StorageMode;
use super::key_hash::KeyHash;
use crate::decision::Decision;

/// Returns whether any subscriber listens at the level of spans, to whatever target.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::level_enabled!(Level::DEBUG)
}

/// The limiter and the key that a span is about.
pub(super) struct Checked<'a> {
    pub(super) policy: &'a str,
    pub(super) mode: StorageMode,
    pub(super) limit: Limit,
    pub(super) key_hash: Option<KeyHash>,
}

pub(super) fn check(checked: &Checked<'_>) -> Span {
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.check",
        strategy = super::strategy(&checked.limit),
        storage_mode = checked.mode.as_str(),
        policy = checked.policy,
        key_hash = checked.key_hash.map(display),
        decision = Empty,
        reason = Empty,
        remaining = Empty,
        retry_after_ms = Empty,
    )
}

pub(super) fn command(checked: &Checked<'_>, command: Command) -> Span {
    tracing::debug_span!(
        target: "balde",
        "rate_limiter.operation",
        operation = super::operation(command),
        strategy = super::strategy(&checked.limit),
        storage_mode = checked.mode.as_str(),
        policy = checked.policy,
        key_hash = checked.key_hash.map(display),
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
