//! What is noted when a step fails, whoever scheduled it.

use crate::cycle::FetchError;
use crate::history::HistoryError;
use crate::schedule::Planner;
use crate::status::Status;

/// There was no answer about a participant: the planner waits, and somebody can see why.
pub(super) fn record_fetch_failure(
    participant: &str,
    error: &FetchError,
    now_us: u64,
    planner: &mut Planner,
    status: &Status,
) {
    let retry_after = match error {
        FetchError::Source(error) => error.retry_after(),
        FetchError::UnknownParticipant => None,
    };
    let us = retry_after.map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
    planner.failed(participant, now_us, us);
    status.record_failure(participant, error);
    tracing::warn!(
        event_type = "poll_failed",
        participant,
        error = %error,
        "the buckets are not known"
    );
}

/// The history did not do its part.
pub(super) fn record_history_failure(participant: &str, error: &HistoryError, status: &Status) {
    status.record_error(participant, "history", error.to_string());
    tracing::error!(
        event_type = "history_error",
        participant,
        error = %error,
        "what was seen could not be kept or judged yet"
    );
}
