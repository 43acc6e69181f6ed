//! What goes through Temporal, as JSON in its histories: little, and nothing secret. The samples
//! themselves live in the history of the monitor.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sample::Poll;

/// The shortest wait within a run, so that no answer keeps the server busy.
const SHORTEST: Duration = Duration::from_secs(1);

/// What a run is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkflowInput {
    /// Whom to ask about, in order.
    pub(super) participants: Vec<String>,
}

/// What came of asking.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FetchResult {
    /// These buckets.
    Poll(Poll),
    /// Nobody was asked: it is too soon, or the budget is used up.
    NotDue(NextPoll),
}

/// What is to be analysed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnalyseInput {
    pub(super) participant: String,
    /// Whether there was an answer. Without one, time alone is judged: stale data, reminders.
    pub(super) is_answered: bool,
}

/// What the analysis found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnalyseResult {
    /// How many alerts it told.
    pub(super) alerts: u64,
    pub(super) next_poll: NextPoll,
}

/// When to next_poll again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextPoll {
    /// From now. Not a time of day, for a worker's clock is not the server's.
    pub(super) in_us: u64,
    /// Whether that is what the calendar says anyway, and a later run's to do.
    pub(super) is_cron: bool,
}

impl NextPoll {
    /// As long as it takes the worker or the database to come back.
    pub(super) const AFTER_FAILURE: Self = Self {
        in_us: 60_000_000,
        is_cron: false,
    };

    /// How long to wait.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_micros(self.in_us).max(SHORTEST)
    }
}

/// What the last step did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PublishResult {
    pub(super) delivered: u64,
    /// Left to the dispatcher.
    pub(super) failed: u64,
}

/// What a run did, for whoever looks at it in Temporal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunSummary {
    pub(super) answers: u64,
    pub(super) failures: u64,
    pub(super) alerts: u64,
}
