//! What is told to somebody.

use serde::{Deserialize, Serialize};

use crate::analyse::{Change, Confidence};
use crate::severity::Severity;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// One for each event and the same whenever that event is worked out again: what receivers
    /// discard repetitions by.
    pub key: String,
    /// One for all that belongs together, from the first alert to its resolution.
    pub episode: String,
    /// Whose bucket or data.
    pub participant: String,
    /// Which bucket; nothing for what concerns the participant as a whole.
    pub policy: Option<String>,
    /// When it was noticed.
    pub at_us: u64,
    /// What happened.
    pub kind: EventKind,
    /// Whom it concerns: what [`Routes`](crate::alert::Routes) go by. The end of an alert goes
    /// where the alert went.
    pub severity: Severity,
    /// Tokens left at the newest sample.
    pub level: Option<i64>,
    /// The bucket's capacity then.
    pub capacity: Option<u64>,
    /// The silence that covers it, by its id.
    pub silenced_by: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// It got worse.
    Raised {
        /// What it was.
        from: Severity,
        /// What it is.
        to: Severity,
    },
    /// It got better and is not good yet.
    Lowered {
        /// What it was.
        from: Severity,
        /// What it is.
        to: Severity,
    },
    /// It is good again, or there is nothing left to be bad.
    Resolved {
        /// What it was.
        from: Severity,
        /// Why it is over.
        reason: ResolveReason,
    },
    /// It still is as it was, or became so in a silence that is over.
    Reminder {
        /// Since when.
        since_us: u64,
    },
    /// It will be empty.
    Predicted {
        /// When, at the present rate.
        empty_at_us: u64,
        /// How sure that is.
        confidence: Confidence,
    },
    /// A prediction is over.
    ForecastOver {
        /// How it ended.
        result: ForecastResult,
    },
    /// Nothing was heard about the participant for too long.
    Stale {
        /// The newest that is known.
        newest_us: u64,
    },
    /// And still nothing.
    StillStale {
        /// The newest that is known.
        newest_us: u64,
    },
    /// There is news again.
    Fresh {
        /// Since when there was none.
        newest_us: u64,
    },
    /// The other side changed something.
    Changed(Change),
}

impl EventKind {
    /// The name in keys and messages.
    pub fn label(&self) -> String {
        match self {
            Self::Raised { to, .. } => format!("raised-{to}"),
            Self::Lowered { to, .. } => format!("lowered-{to}"),
            Self::Resolved { .. } => "resolved".to_owned(),
            Self::Reminder { .. } => "reminder".to_owned(),
            Self::Predicted { .. } => "predicted".to_owned(),
            Self::ForecastOver { .. } => "forecast-over".to_owned(),
            Self::Stale { .. } => "stale".to_owned(),
            Self::StillStale { .. } => "still-stale".to_owned(),
            Self::Fresh { .. } => "fresh".to_owned(),
            Self::Changed(change) => format!("changed-{}", change.label()),
        }
    }
}

/// Why an alert is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolveReason {
    /// The bucket filled up again.
    Recovered,
    /// The policy is no longer listed.
    Vanished,
}

/// What became of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForecastResult {
    /// The bucket is empty.
    CameTrue,
    /// It is no longer about to be, or no longer there.
    Averted,
}

/// The number of an event within the life of a machine, and what its key is made of.
pub(crate) fn key(subject: &str, epoch_us: u64, sequence: u64, label: &str) -> String {
    format!("{subject}/{epoch_us}/{sequence}/{label}")
}

/// What all events of an episode have in common.
pub(crate) fn episode(subject: &str, epoch_us: u64, sequence: u64, name: &str) -> String {
    format!("{subject}/{epoch_us}/{name}-{sequence}")
}
