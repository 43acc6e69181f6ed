//! The timeouts and retry policies of the activities.

use std::time::Duration;

use temporalio_sdk::ActivityOptions;
use temporalio_workflow::{ActivityCloseTimeouts, RetryPolicy};

/// How often an activity sends a heartbeat.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3);

/// How long the server waits for a heartbeat before it gives the activity to another worker.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a run waits for the database before it continues without the result.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(300);

/// The timeouts and the retry policy of one activity.
#[derive(Debug)]
pub(super) struct RetryRule {
    /// The longest duration of one attempt.
    attempt: Duration,
    /// The longest duration of all attempts together, waits included.
    total: Option<Duration>,
    /// The number of attempts; `None` for as many as fit into `total`.
    attempts: Option<u32>,
    /// The wait after the first attempt, doubled after each further one. An error may override it:
    /// a failed fetch is retried when the planner allows it.
    first_wait: Duration,
    longest_wait: Duration,
    /// The labels of errors that are not retried.
    permanent: &'static [&'static str],
}

/// The fetch activity. Each attempt costs a token of the budget, so there are few, as far apart as
/// two polls. A refusal or an invalid response is not expected to change within seconds.
pub(super) const FETCH: RetryRule = RetryRule {
    attempt: Duration::from_secs(45),
    total: None,
    attempts: Some(3),
    first_wait: Duration::from_secs(12),
    longest_wait: Duration::from_secs(60),
    permanent: &[
        "forbidden",
        "invalid_response",
        "invalid_sample",
        "signature",
        "too_long",
        "unknown_participant",
    ],
};

/// The store activity. Retried for as long as a run lasts; after that the poll stays in the worker's
/// memory and is stored before the next one.
pub(super) const STORE: RetryRule = RetryRule {
    attempt: Duration::from_secs(30),
    total: Some(DATABASE_TIMEOUT),
    attempts: None,
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(30),
    permanent: &["invalid"],
};

/// The analyse activity. It is idempotent, so it can be retried freely.
pub(super) const ANALYSE: RetryRule = RetryRule {
    attempt: Duration::from_secs(30),
    total: Some(DATABASE_TIMEOUT),
    attempts: None,
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(30),
    permanent: &[],
};

/// The publish activity. Few attempts, because the dispatchers retry every failed delivery.
pub(super) const PUBLISH: RetryRule = RetryRule {
    attempt: Duration::from_secs(45),
    total: None,
    attempts: Some(3),
    first_wait: Duration::from_secs(2),
    longest_wait: Duration::from_secs(10),
    permanent: &[],
};

impl RetryRule {
    /// The options of the activity for Temporal.
    pub(super) fn options(&self) -> ActivityOptions {
        let retries = RetryPolicy::builder()
            .initial_interval(self.first_wait)
            .backoff_coefficient(2.0)
            .maximum_interval(self.longest_wait)
            .maximum_attempts(self.attempts.unwrap_or(0))
            .non_retryable_error_types(self.permanent.iter().copied())
            .build();
        let start_to_close = self.attempt;
        let timeouts = match self.total {
            Some(schedule_to_close) => ActivityCloseTimeouts::ScheduleAndStartToClose {
                schedule_to_close,
                start_to_close,
            },
            None => ActivityCloseTimeouts::StartToClose(start_to_close),
        };
        ActivityOptions::with_close_timeouts(timeouts)
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .retry_policy(retries)
            .build()
    }
}
