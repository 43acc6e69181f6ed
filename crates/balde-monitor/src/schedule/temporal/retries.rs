//! How often and for how long each step is tried: all of it, in one place.

use std::time::Duration;

use temporalio_sdk::ActivityOptions;
use temporalio_workflow::{ActivityCloseTimeouts, RetryPolicy};

/// How often a step tells the server that its worker lives.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3);

/// After how long without a word the server gives the step to another worker.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long a run may wait for the database before it goes on without.
const ONE_RUN: Duration = Duration::from_secs(300);

/// How one step is tried.
#[derive(Debug)]
pub(super) struct RetryRule {
    /// How long one attempt may take.
    attempt: Duration,
    /// How long all of them may take together, waits included.
    together: Option<Duration>,
    /// How many there are; as many as there is time for where nothing is said.
    attempts: Option<u32>,
    /// The wait after the first one, and twice as long after each further one. A failure that knows
    /// better says so: a source that is asked again waits for the planner.
    first_wait: Duration,
    longest_wait: Duration,
    /// Failures after which another attempt is a waste, by their short names.
    never_again: &'static [&'static str],
}

/// One call that lists all buckets. Each attempt costs a token of the budget, so there are few, as
/// far apart as two polls are; a refusal or nonsense is the same the next second.
pub(super) const GET: RetryRule = RetryRule {
    attempt: Duration::from_secs(45),
    together: None,
    attempts: Some(3),
    first_wait: Duration::from_secs(12),
    longest_wait: Duration::from_secs(60),
    never_again: &[
        "forbidden",
        "invalid_response",
        "unknown_participant",
        "signature",
        "invalid_sample",
        "too_long",
    ],
};

/// An answer that was paid for is kept, if it takes as long as the run. After that it stays in the
/// worker's memory, and goes in before the next one.
pub(super) const STORE: RetryRule = RetryRule {
    attempt: Duration::from_secs(30),
    together: Some(ONE_RUN),
    attempts: None,
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(30),
    never_again: &["invalid"],
};

/// Begins at the same place every time, so trying again does no harm.
pub(super) const ANALYSE: RetryRule = RetryRule {
    attempt: Duration::from_secs(30),
    together: Some(ONE_RUN),
    attempts: None,
    first_wait: Duration::from_secs(1),
    longest_wait: Duration::from_secs(30),
    never_again: &[],
};

/// Few: whatever does not arrive now is carried by the dispatcher, who never give up.
pub(super) const PUBLISH: RetryRule = RetryRule {
    attempt: Duration::from_secs(45),
    together: None,
    attempts: Some(3),
    first_wait: Duration::from_secs(2),
    longest_wait: Duration::from_secs(10),
    never_again: &[],
};

impl RetryRule {
    /// The same in Temporal's words.
    pub(super) fn options(&self) -> ActivityOptions {
        let retries = RetryPolicy::builder()
            .initial_interval(self.first_wait)
            .backoff_coefficient(2.0)
            .maximum_interval(self.longest_wait)
            .maximum_attempts(self.attempts.unwrap_or(0))
            .non_retryable_error_types(self.never_again.iter().copied())
            .build();
        let start_to_close = self.attempt;
        let timeouts = match self.together {
            Some(schedule_to_close) => ActivityCloseTimeouts::ScheduleAndStartToClose {
                schedule_to_close,
                start_to_close,
            },
            None => ActivityCloseTimeouts::StartToClose(start_to_close),
        };
        ActivityOptions::with_close_timeouts(timeouts)
            .heartbeat_timeout(SILENCE_MAX)
            .retry_policy(retries)
            .build()
    }
}
