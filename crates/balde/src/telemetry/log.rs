//! The lines that a limiter writes about its decisions. Keys appear as salted hashes; passwords and
//! addresses never appear.
//!
//! Denials, fallbacks and bad keys are throttled: one line at once, then one a second with the
//! number of events that were suppressed.

use std::time::Duration;

use tracing::Level;

use super::key_hash::KeyHash;
use super::{retry_after_ms, strategy};
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::key::BadKey;

/// What a line about a decision contains.
pub(super) struct DecisionEvent<'a> {
    pub(super) policy: &'a str,
    pub(super) storage_mode: &'static str,
    pub(super) decision: &'a Decision,
    pub(super) took: Duration,
    pub(super) key_hash: Option<KeyHash>,
    pub(super) suppressed: u64,
}

/// Writes one line about a decision, with the fields that all such lines have.
macro_rules! line {
    ($level:ident, $event:expr, $event_type:literal, $decision:literal, $($rest:tt)+) => {{
        let event: &DecisionEvent<'_> = $event;
        tracing::$level!(
            target: "balde",
            event_type = $event_type,
            decision = $decision,
            strategy = strategy(event.decision.limit()),
            storage_mode = event.storage_mode,
            policy = event.policy,
            latency_ms = event.took.as_secs_f64() * 1e3,
            retry_after_ms = retry_after_ms(event.decision),
            remaining = event.decision.remaining(),
            key_hash = event.key_hash.map(display),
            suppressed = event.suppressed,
            $($rest)+
        );
    }};
}

/// Returns whether any subscriber listens at level WARN, to whatever target. One load and a branch.
#[inline]
pub(crate) fn is_on() -> bool {
    tracing::level_enabled!(Level::WARN)
}

/// Returns whether a subscriber wants lines about denials.
pub(super) fn is_info_on() -> bool {
    tracing::enabled!(target: "balde", Level::INFO)
}

/// Returns whether a subscriber wants warnings.
pub(super) fn is_warn_on() -> bool {
    tracing::enabled!(target: "balde", Level::WARN)
}

/// The bucket had too few tokens.
pub(super) fn denied(event: &DecisionEvent<'_>) {
    let reason = super::reason(event.decision);
    line!(
        info,
        event,
        "denied",
        "deny",
        reason,
        "denied: the bucket has too few tokens"
    );
}

pub(super) fn bad_key(event: &DecisionEvent<'_>, bad: BadKey) {
    line!(
        warn,
        event,
        "bad_key",
        "deny",
        reason = "bad_key",
        "denied: {bad}"
    );
}

/// The failure policy decided, because the store was unavailable.
#[cfg(feature = "redis")]
pub(super) fn fallback(
    event: &DecisionEvent<'_>,
    on_failure: Option<OnFailure>,
    failure: StoreFailure,
) {
    let on_failure = on_failure.map(OnFailure::as_str);
    line!(
        warn,
        event,
        "fallback",
        "fallback",
        on_failure,
        is_allowed = event.decision.is_allowed(),
        reason = failure.as_str(),
        "decided without the store: {failure}"
    );
}
