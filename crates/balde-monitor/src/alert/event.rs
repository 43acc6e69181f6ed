//! Alert events, which are recorded and sent to sinks.

use serde::{Deserialize, Serialize};

use crate::analyse::{Change, Confidence};
use crate::severity::Severity;

/// The `participant` of events about the monitor itself.
pub const MONITOR: &str = "monitor";

/// One alert event: something was raised, lowered, resolved, predicted, found stale or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The unique key of the event. It is the same every time the event is computed or sent, so
    /// receivers can discard duplicates by it.
    pub key: String,
    /// The key that all events of one alert have in common, from the first one to its resolution.
    pub episode: String,
    /// The participant; [`MONITOR`] for events about the monitor itself.
    pub participant: String,
    /// The policy of the bucket; `None` for events that concern the whole participant.
    pub policy: Option<String>,
    /// When the event happened.
    pub at_us: u64,
    /// What happened.
    pub kind: EventKind,
    /// The severity by which [`Routes`](crate::alert::Routes) select sinks. A resolution has the
    /// worst severity of its episode, so that it goes to every sink that got the alert.
    pub severity: Severity,
    /// The level of the newest sample, in tokens.
    pub level: Option<i64>,
    /// The capacity of that sample.
    pub capacity: Option<u64>,
    /// The recovery time from that sample on: how long until the bucket is full again if nothing more
    /// is consumed. `None` if it never refills, and for events about more than one bucket.
    #[serde(default)]
    pub recovery_us: Option<u64>,
    /// The id of the silence that covers the event.
    pub silenced_by: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The severity of a bucket got worse.
    Raised {
        /// The severity before.
        from: Severity,
        /// The severity now.
        to: Severity,
    },
    /// The severity of a bucket got better, but is not NORMAL.
    Lowered {
        /// The severity before.
        from: Severity,
        /// The severity now.
        to: Severity,
    },
    /// The alert of a bucket is over.
    Resolved {
        /// The severity before.
        from: Severity,
        /// Why it is over.
        reason: ResolveReason,
    },
    /// The alert of a bucket is still open, or a silence that covered it has ended.
    Reminder {
        /// Since when the severity has been the same.
        since_us: u64,
    },
    /// A bucket is expected to be empty soon.
    Predicted {
        /// When it will be empty at the current rate.
        empty_at_us: u64,
        /// The confidence of the forecast.
        confidence: Confidence,
    },
    /// The forecast that a bucket will be empty has ended.
    ForecastOver {
        /// How it ended.
        result: ForecastResult,
    },
    /// There has been no new data about the participant for too long.
    Stale {
        /// The time of the newest data.
        newest_us: u64,
        /// The error of the newest poll, if polls fail.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// There is still no new data about the participant.
    StillStale {
        /// The time of the newest data.
        newest_us: u64,
        /// The error of the newest poll, if polls fail.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// There is new data about the participant again.
    Fresh {
        /// The time of the newest data before that.
        newest_us: u64,
    },
    /// The participant's category, a limit or the list of policies changed.
    Changed(Change),
    /// Somebody works on the alert of a bucket: its reminders are not sent.
    Acknowledged {
        /// Who.
        by: String,
        /// The system in which that happened; `None` for this monitor's own page and API.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<Via>,
    },
    /// The acknowledgement of a bucket's alert was taken back.
    Unacknowledged {
        /// Who took it back.
        by: String,
        /// The system in which that happened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<Via>,
    },
    /// Somebody closed the alert of a bucket, whose level may still be low.
    Closed {
        /// The severity before.
        from: Severity,
        /// Who.
        by: String,
        /// The system in which that happened.
        via: Via,
    },
    /// Alerts are not sent until a time.
    Silenced {
        /// Who silenced them.
        by: String,
        /// The end of the silence.
        until_us: u64,
        /// The worst severity that is not sent.
        up_to: Severity,
    },
    /// A silence was ended before its time.
    SilenceEnded {
        /// Who ended it.
        by: String,
    },
    /// The monitor cannot store anything: its database is unavailable, full, read-only or damaged.
    StorageFailed {
        /// When the first write failed.
        since_us: u64,
        /// The error of the database.
        cause: String,
    },
    /// The monitor still cannot store anything.
    StorageStillFailing {
        /// When the first write failed.
        since_us: u64,
        /// The error of the database.
        cause: String,
    },
    /// The monitor stores again.
    StorageRecovered {
        /// When the first write had failed.
        since_us: u64,
    },
    /// Nothing happened: an operator tests a sink. Never stored.
    Test {
        /// The name of the sink.
        sink: String,
    },
    /// The test of a sink is over.
    TestOver {
        /// The name of the sink.
        sink: String,
    },
}

impl EventKind {
    /// Returns true if the event ends its episode.
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Resolved { .. }
                | Self::ForecastOver { .. }
                | Self::Closed { .. }
                | Self::Fresh { .. }
                | Self::StorageRecovered { .. }
                | Self::TestOver { .. }
        )
    }

    /// Returns true if the event says what an operator did about alerts.
    pub const fn is_by_operator(&self) -> bool {
        matches!(
            self,
            Self::Acknowledged { .. }
                | Self::Unacknowledged { .. }
                | Self::Closed { .. }
                | Self::Silenced { .. }
                | Self::SilenceEnded { .. }
        )
    }

    /// The system in which an operator did it; `None` for everything else.
    pub const fn via(&self) -> Option<Via> {
        match self {
            Self::Acknowledged { via, .. } | Self::Unacknowledged { via, .. } => *via,
            Self::Closed { via, .. } => Some(*via),
            _ => None,
        }
    }

    /// Returns the name that is used in keys, log lines and message properties.
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
            Self::Acknowledged { .. } => "acknowledged".to_owned(),
            Self::Unacknowledged { .. } => "unacknowledged".to_owned(),
            Self::Closed { .. } => "closed".to_owned(),
            Self::Silenced { .. } => "silenced".to_owned(),
            Self::SilenceEnded { .. } => "silence-ended".to_owned(),
            Self::StorageFailed { .. } => "storage-failed".to_owned(),
            Self::StorageStillFailing { .. } => "storage-still-failing".to_owned(),
            Self::StorageRecovered { .. } => "storage-recovered".to_owned(),
            Self::Test { .. } => "test".to_owned(),
            Self::TestOver { .. } => "test-over".to_owned(),
        }
    }
}

/// A system in which people work on alerts, too, and which reports it to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Via {
    /// `PagerDuty`, through its webhooks.
    #[serde(rename = "pagerduty")]
    PagerDuty,
}

impl Via {
    /// The name as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PagerDuty => "PagerDuty",
        }
    }
}

/// Why an alert is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolveReason {
    /// The level recovered.
    Recovered,
    /// The policy is no longer listed.
    Vanished,
    /// The participant is no longer in the monitor's file.
    NotConfigured,
}

/// How a forecast ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForecastResult {
    /// The bucket is empty.
    CameTrue,
    /// The bucket is no longer expected to be empty soon, or its policy is no longer listed.
    Averted,
}

/// Returns the key of an event. `sequence` is its number within the life of a state machine.
pub(super) fn key(subject: &str, epoch_us: u64, sequence: u64, label: &str) -> String {
    format!("{subject}/{epoch_us}/{sequence}/{label}")
}

/// Returns the key of an episode. `sequence` is the number of its first event.
pub(super) fn episode(subject: &str, epoch_us: u64, sequence: u64, name: &str) -> String {
    format!("{subject}/{epoch_us}/{name}-{sequence}")
}
