//! The payloads of the workflow and its activities, stored as JSON in Temporal's event histories.
//! They are small and hold no secrets; the samples are kept in the monitor's own database.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sample::Poll;

/// The shortest timer within a run, which limits the load on the server.
const TIMER_MIN: Duration = Duration::from_secs(1);

/// The input of a workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkflowInput {
    /// The participants to poll, in order.
    pub(super) participants: Vec<String>,
}

/// The result of the fetch activity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FetchResult {
    /// The participant was polled.
    Poll(Poll),
    /// The participant was not polled: it is not due, or the budget is used up.
    NotDue(NextPoll),
}

/// The input of the analyse activity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnalyseInput {
    pub(super) participant: String,
    /// Whether the poll succeeded. If not, only stale data and reminders are evaluated.
    pub(super) is_polled: bool,
}

/// The result of the analyse activity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnalyseResult {
    /// The number of events.
    pub(super) alerts: u64,
    pub(super) next_poll: NextPoll,
}

/// When a participant is polled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextPoll {
    /// The time from now. Not a time of day, because the worker's clock differs from the server's.
    pub(super) in_us: u64,
    /// Whether that is the next time of the cron expression, and so part of the next run.
    pub(super) is_cron: bool,
}

impl NextPoll {
    /// The wait after a failed activity, which gives a worker or a database time to come back.
    pub(super) const AFTER_FAILURE: Self = Self {
        in_us: 60_000_000,
        is_cron: false,
    };

    /// The duration of the timer.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_micros(self.in_us).max(TIMER_MIN)
    }
}

/// The result of the publish activity.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PublishResult {
    pub(super) delivered: u64,
    /// Failed deliveries, which the dispatchers retry.
    pub(super) failed: u64,
}

/// The result of a workflow run, shown in Temporal's UI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunSummary {
    pub(super) polls: u64,
    pub(super) failures: u64,
    pub(super) alerts: u64,
}
