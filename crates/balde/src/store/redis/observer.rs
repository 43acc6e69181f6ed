//! What the store reports while it works: log events and spans through `tracing`, and the duration
//! of script calls to a function that the limiter provides.

use std::time::Duration;

use tracing::field::Empty;
use tracing::{Level, Span};

use super::place::Place;
use crate::failure::StoreFailure;

/// Receives the duration of each script call that one limiter makes.
pub(crate) type ScriptTimer = Box<dyn Fn(Duration) + Send + Sync>;

/// The span of one script call, as a child of the current one.
pub(super) fn call_span(buckets: usize) -> Span {
    if !tracing::level_enabled!(Level::DEBUG) {
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

/// Records in the span of a call how it ended.
pub(super) fn record_end(span: &Span, failure: Option<&StoreFailure>) {
    if !span.is_disabled() {
        let outcome = failure.map_or("answered", |failure| failure.as_str());
        span.record("outcome", outcome);
    }
}

/// A call failed in a way that does not pass by itself in a moment.
pub(super) fn call_failed(failure: StoreFailure, place: &Place, suppressed: u64) {
    let (address, cause) = (place.address(), place.cause(failure));
    tracing::error!(
        target: "balde",
        event_type = "backend_error",
        storage_mode = "redis",
        reason = failure.as_str(),
        address,
        suppressed,
        "a call to Redis at {address} failed: {cause}"
    );
}

pub(super) fn breaker_opened(failure: StoreFailure, place: &Place) {
    let (address, cause) = (place.address(), place.cause(failure));
    tracing::error!(
        target: "balde",
        event_type = "breaker_opened",
        storage_mode = "redis",
        reason = failure.as_str(),
        address,
        "circuit breaker opened: {cause}; no calls are sent to Redis at {address} until a probe succeeds"
    );
}

pub(super) fn breaker_closed(place: &Place) {
    let address = place.address();
    tracing::info!(
        target: "balde",
        event_type = "breaker_closed",
        storage_mode = "redis",
        address,
        "circuit breaker closed: Redis at {address} is available again"
    );
}

pub(super) fn script_reloaded(suppressed: u64) {
    tracing::warn!(
        target: "balde",
        event_type = "script_reloaded",
        storage_mode = "redis",
        suppressed,
        "Redis had lost the script (NOSCRIPT); it was sent again"
    );
}

pub(super) fn reply_too_large() {
    tracing::error!(
        target: "balde",
        event_type = "reply_too_large",
        storage_mode = "redis",
        "the server sent a reply of more than 1 MiB, which no version of Redis does here; the \
         connection is closed. Is the address that of a Redis server?"
    );
}
