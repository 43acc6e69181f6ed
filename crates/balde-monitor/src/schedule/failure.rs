//! What both schedulers record when a step of the cycle fails.

use crate::cycle::FetchError;
use crate::history::HistoryError;
use crate::schedule::planner::Planner;
use crate::status::Status;

/// Records a failed fetch: the planner backs off, and status and log name the cause.
pub(super) fn record_fetch_failure(
    participant: &str,
    error: &FetchError,
    now_us: u64,
    planner: &mut Planner,
    status: &Status,
) {
    let retry_after = match error {
        FetchError::Source(error) => error.retry_after(),
        FetchError::UnknownParticipant | FetchError::Interrupted => None,
    };
    let us = retry_after.map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
    planner.failed(participant, now_us, us);
    status.record_failure(participant, error);
    tracing::warn!(
        event_type = "poll_failed",
        participant,
        error = %error,
        "polling the participant's buckets failed"
    );
}

/// Records a database error of a step after the fetch.
pub(super) fn record_history_failure(participant: &str, error: &HistoryError, status: &Status) {
    status.record_error(participant, "history", error.to_string());
    // The storage check logs the outage itself; this would be a line for every poll.
    tracing::debug!(
        event_type = "history_error",
        participant,
        error = %error,
        "a poll could not be stored or analysed; it is kept in memory until it can be"
    );
}
