//! The lines that a limiter writes about its decisions. Keys appear as salted hashes; passwords and
//! addresses never appear.
//!
//! Denials, fallbacks and bad keys are throttled: one line at once, then one a second with the
//! number of events that were suppressed.

use std::time::Duration;

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level};

use super::key_hash::KeyHash;
#[cfg(feature = "redis")]
use crate::failure::{OnFailure, StoreFailure};
use crate::key::BadKey;

/// What a line about a decision contains. Fields without a value are left out.
pub(super) struct DecisionEvent<'a> {
    pub(super) policy: &'a str,
    pub(super) storage_mode: &'static str,
    pub(super) strategy: &'static str,
    pub(super) reason: &'static str,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) remaining: u64,
    pub(super) took: Duration,
    pub(super) key_hash: Option<KeyHash>,
    pub(super) suppressed: Option<u64>,
    /// When the decision was made, and in which span, if the line is written by another thread.
    pub(super) timestamp: Option<&'a str>,
    pub(super) trace_id: Option<&'a str>,
    pub(super) span_id: Option<&'a str>,
}

/// Writes one line about a decision, with the fields that all such lines have.
macro_rules! line {
    ($level:ident, $event:expr, $event_type:literal, $decision:literal, $($rest:tt)+) => {{
        let event: &DecisionEvent<'_> = $event;
        tracing::$level!(
            target: "balde",
            timestamp = event.timestamp,
            event_type = $event_type,
            decision = $decision,
            strategy = event.strategy,
            storage_mode = event.storage_mode,
            policy = event.policy,
            latency_ms = event.took.as_secs_f64() * 1e3,
            retry_after_ms = event.retry_after_ms,
            remaining = event.remaining,
            key_hash = event.key_hash.map(display),
            trace_id = event.trace_id,
            span_id = event.span_id,
            reason = event.reason,
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

/// Returns whether any subscriber listens at level INFO, to whatever target. One load and a branch,
/// where [`is_info_on`] asks the subscriber.
#[inline]
pub(super) fn is_info_level_on() -> bool {
    tracing::level_enabled!(Level::INFO)
}

/// Returns whether a subscriber wants lines about denials.
pub(super) fn is_info_on() -> bool {
    tracing::enabled!(target: "balde", Level::INFO)
}

/// Returns whether a subscriber wants warnings.
pub(super) fn is_warn_on() -> bool {
    tracing::enabled!(target: "balde", Level::WARN)
}

/// Runs `emit` with the global subscriber, or with `dispatch` if there is none. A subscriber that is
/// entered for one thread makes events slower in all of them.
pub(super) fn in_dispatch<T>(dispatch: &Dispatch, emit: impl FnOnce() -> T) -> T {
    if tracing::dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
        tracing::dispatcher::with_default(dispatch, emit)
    } else {
        emit()
    }
}

/// The bucket had too few tokens.
pub(super) fn denied(event: &DecisionEvent<'_>) {
    line!(
        info,
        event,
        "denied",
        "deny",
        "denied: the bucket has too few tokens"
    );
}

pub(super) fn bad_key(event: &DecisionEvent<'_>, bad: BadKey) {
    line!(warn, event, "bad_key", "deny", "denied: {bad}");
}

/// The failure policy decided, because the store was unavailable.
#[cfg(feature = "redis")]
pub(super) fn fallback(
    event: &DecisionEvent<'_>,
    on_failure: Option<OnFailure>,
    is_allowed: bool,
    failure: StoreFailure,
) {
    let on_failure = on_failure.map(OnFailure::as_str);
    line!(
        warn,
        event,
        "fallback",
        "fallback",
        on_failure,
        is_allowed,
        "decided without the store: {failure}"
    );
}

/// Denials were not logged, because their queue was full.
pub(super) fn denials_dropped(policy: &str, storage_mode: &str, dropped: u64) {
    tracing::warn!(
        target: "balde",
        event_type = "denials_dropped",
        storage_mode,
        policy,
        dropped,
        "{dropped} denials were not logged: the queue was full"
    );
}
