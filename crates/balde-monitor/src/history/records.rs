//! What history keeps and gives back, whichever database keeps it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::alert::{AlertState, Event, SinkClass, StalenessCheck};
use crate::severity::Severity;

/// The state machines of one participant, as they were committed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantState {
    /// Counts the commits: whoever commits names the version that was read, and loses to whoever
    /// committed in between.
    pub version: u64,
    /// The watch over the participant's data.
    pub staleness: StalenessCheck,
    /// The alerts, by policy in ascending order.
    pub alerts: Vec<AlertState>,
}

/// What one analysis found, to be committed as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The version of the machines that the analysis began with.
    pub version: u64,
    /// The watch afterwards.
    pub staleness: StalenessCheck,
    /// The alerts afterwards.
    pub alerts: Vec<AlertState>,
    /// What to tell, and whom.
    pub events: Vec<RoutedEvent>,
}

/// An event and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedEvent {
    /// What to tell.
    pub event: Event,
    /// The classes of sinks that it was routed to.
    pub classes: Vec<SinkClass>,
    /// The names of the sinks that have to deliver it, each with the class it serves here.
    pub sinks: Vec<(String, SinkClass)>,
}

/// An event on its way to one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Its number in the outbox; later is higher.
    pub id: i64,
    /// The sink that has to deliver it.
    pub sink: String,
    /// As what that sink serves.
    pub class: SinkClass,
    /// What to tell.
    pub event: Event,
    /// How often it was tried.
    pub attempts: u32,
}

/// How much one sink still has to deliver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// The sink.
    pub sink: String,
    /// Letters that wait.
    pub waiting: u64,
    /// When the oldest of them was told.
    pub oldest_us: Option<u64>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// How fine a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The samples themselves.
    Samples,
    /// One point an hour.
    Hour,
    /// One point a day.
    Day,
}

/// One bucket over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    /// How fine it is.
    pub resolution: Resolution,
    /// The points, the oldest first.
    pub points: Vec<Point>,
    /// From when to when there is no data where data should be.
    pub gaps: Vec<Gap>,
}

/// What a bucket was in one stretch of time, which is one moment for [`Resolution::Samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// When the stretch begins.
    pub at_us: u64,
    /// How many samples it has.
    pub samples: u64,
    /// The lowest level in it.
    pub level_min: i64,
    /// The highest.
    pub level_max: i64,
    /// The newest.
    pub level: i64,
    /// The newest capacity.
    pub capacity: u64,
}

/// A time without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The last sample before it.
    pub from_us: u64,
    /// The first after it.
    pub until_us: u64,
}

/// Which events to look up. What is not named does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of one participant.
    pub participant: Option<String>,
    /// About one policy.
    pub policy: Option<String>,
    /// At least this bad.
    pub severity: Option<Severity>,
    /// Not earlier.
    pub from_us: Option<u64>,
    /// Earlier than this.
    pub before_us: Option<u64>,
}

/// Something bad enough to have a history of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The episode of its events.
    pub episode: String,
    /// Whose bucket or data.
    pub participant: String,
    /// Which bucket.
    pub policy: Option<String>,
    /// The worst it was.
    pub severity: Severity,
    /// When it began.
    pub opened_us: u64,
    /// When it was over.
    pub closed_us: Option<u64>,
    /// What happened, the oldest first.
    pub timeline: Vec<Event>,
}

/// How often something was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlertCount {
    /// About which bucket; only the participant for what concerns it as a whole.
    pub participant: String,
    /// Which policy.
    pub policy: Option<String>,
    /// How bad.
    pub severity: Severity,
    /// How often an alert was raised or predicted.
    pub alerts: u64,
}

/// How long what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Samples, roll-ups, events and closed incidents older than this many calendar months are
    /// deleted; zero counts as one.
    pub months: u32,
    /// Samples older than this are thinned out to one in five minutes, the lowest; zero for never.
    pub thin_after_days: u32,
}

impl Default for Retention {
    /// 13 months, thinned out after a month.
    fn default() -> Self {
        Self {
            months: 13,
            thin_after_days: 31,
        }
    }
}

/// What one round of upkeep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Rows deleted for their age.
    pub deleted: u64,
    /// Samples thinned out.
    pub thinned: u64,
    /// Partitions made ahead of time.
    pub partitions: u32,
    /// Whether there is more to do: a round is short, so that it never stands in the way.
    pub has_more: bool,
}

/// Why the database did not do it.
#[derive(Debug)]
#[non_exhaustive]
pub enum HistoryError {
    /// The address of the database is neither a file nor a `postgres://` URL.
    Address {
        /// What is wrong with it, without its password.
        why: String,
    },
    /// The database cannot be reached or was lost; it may be back.
    Unavailable {
        /// What is known about it.
        why: String,
    },
    /// The database is there and refuses.
    Rejected {
        /// What it says.
        why: String,
    },
    /// Somebody else committed in between: what was worked out is out of date.
    Conflict,
    /// Another process owns the file.
    InUse {
        /// Which file.
        path: String,
    },
    /// What is in the database cannot be read as what it should be.
    Corrupt {
        /// What, and where.
        why: String,
    },
}

impl HistoryError {
    /// Whether it can pass by itself.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Conflict)
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { why } => write!(f, "the history's address is no use: {why}"),
            Self::Unavailable { why } => write!(f, "the history's database is away: {why}"),
            Self::Rejected { why } => write!(f, "the history's database refuses: {why}"),
            Self::Conflict => f.write_str("another monitor committed in between"),
            Self::InUse { path } => write!(
                f,
                "{path} is in use by another monitor; stop that one, or name another file"
            ),
            Self::Corrupt { why } => {
                write!(f, "the history's database holds something strange: {why}")
            }
        }
    }
}

impl std::error::Error for HistoryError {}
