//! The records that the history stores and returns.

use serde::{Deserialize, Serialize};

use crate::alert::{AlertState, Event, SinkClass, StalenessCheck};
use crate::sample::Sample;
use crate::severity::Severity;

/// The alert states of one participant, as last committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantState {
    /// The number of commits so far. A [`StateUpdate`] must name the version it was computed from.
    pub version: u64,
    /// Whether the participant's data is up to date.
    pub staleness: StalenessCheck,
    /// The alert states of the participant's buckets, in ascending order of policy.
    pub alerts: Vec<AlertState>,
}

/// The result of one analysis, committed as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The version of the [`ParticipantState`] that the analysis started from.
    pub version: u64,
    /// The staleness check afterwards.
    pub staleness: StalenessCheck,
    /// The alert states that changed.
    pub alerts: Vec<AlertState>,
    /// The events to record and deliver.
    pub events: Vec<RoutedEvent>,
}

/// An event together with the sinks that have to deliver it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedEvent {
    /// The event.
    pub event: Event,
    /// The classes of sinks that the event was routed to.
    pub classes: Vec<SinkClass>,
    /// The names of the sinks that have to deliver it, each with the class it serves here.
    pub sinks: Vec<(String, SinkClass)>,
}

/// The messages that one sink has not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// The name of the sink.
    pub sink: String,
    /// The number of undelivered messages.
    pub waiting: u64,
    /// The time of the oldest event among them.
    pub oldest_us: Option<u64>,
    /// The error of the sink's last attempt, if it failed.
    pub last_error: Option<String>,
}

/// The resolution of a [`Series`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// One point for each sample.
    Samples,
    /// One point for each hour.
    Hour,
    /// One point for each day.
    Day,
}

/// The levels of one bucket over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    /// The interval that one point covers.
    pub resolution: Resolution,
    /// The points, the oldest first.
    pub points: Vec<Point>,
    /// The intervals without data.
    pub gaps: Vec<Gap>,
}

impl Series {
    /// A series of single samples, the oldest first, without looking for gaps.
    pub(crate) fn of_samples<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let point = |sample: &Sample| Point {
            at_us: sample.taken_us(),
            samples: 1,
            level_min: sample.level(),
            level_max: sample.level(),
            level: sample.level(),
            capacity: sample.limit().capacity(),
        };
        Self {
            resolution: Resolution::Samples,
            points: samples.map(point).collect(),
            gaps: Vec::new(),
        }
    }
}

/// The levels of a bucket in one interval, or at one time for [`Resolution::Samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The start of the interval.
    pub at_us: u64,
    /// The number of samples in it.
    pub samples: u64,
    /// The lowest level.
    pub level_min: i64,
    /// The highest level.
    pub level_max: i64,
    /// The level of the newest sample.
    pub level: i64,
    /// The capacity of the newest sample.
    pub capacity: u64,
}

/// An interval without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The last sample before it.
    pub from_us: u64,
    /// The first sample after it.
    pub until_us: u64,
}

/// Selects events. A field that is `None` selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only events of this participant.
    pub participant: Option<String>,
    /// Only events of this policy.
    pub policy: Option<String>,
    /// Only events of at least this severity.
    pub severity: Option<Severity>,
    /// Only events at or after this time.
    pub from_us: Option<u64>,
    /// Only events before this time.
    pub before_us: Option<u64>,
}

impl EventFilter {
    /// Returns true if an event is one of those that the filter selects.
    pub fn matches(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == value
        };
        is(&self.participant, Some(&event.participant))
            && is(&self.policy, event.policy.as_deref())
            && self.severity.is_none_or(|least| event.severity >= least)
            && self.from_us.is_none_or(|us| event.at_us >= us)
            && self.before_us.is_none_or(|us| event.at_us < us)
    }
}

/// An alert with its timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// The episode that its events have in common.
    pub episode: String,
    /// The participant.
    pub participant: String,
    /// The policy of the bucket; `None` if the incident concerns the whole participant.
    pub policy: Option<String>,
    /// The worst severity so far.
    pub severity: Severity,
    /// When it began.
    pub opened_us: u64,
    /// When it ended; `None` while it is open.
    pub closed_us: Option<u64>,
    /// Its events, the oldest first.
    pub timeline: Vec<Event>,
}

/// The number of alerts of one bucket and severity since the database was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlertCount {
    /// The participant.
    pub participant: String,
    /// The policy of the bucket; `None` for alerts about the whole participant.
    pub policy: Option<String>,
    /// The severity.
    pub severity: Severity,
    /// How many alerts were raised or predicted.
    pub alerts: u64,
}

/// How long the history keeps its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Samples, roll-ups, events and closed incidents older than this many calendar months are
    /// deleted. Zero counts as one.
    pub months: u32,
    /// Of samples older than this many days only the lowest of every five minutes is kept. Zero
    /// keeps all.
    pub thin_after_days: u32,
}

impl Default for Retention {
    /// 13 months, thinned out after 31 days.
    fn default() -> Self {
        Self {
            months: 13,
            thin_after_days: 31,
        }
    }
}

/// What one round of maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Rows deleted because they were too old.
    pub deleted: u64,
    /// Samples deleted by thinning out.
    pub thinned: u64,
    /// Partitions created ahead of time.
    pub partitions: u32,
    /// Whether there is more to do. Rounds are short, so that other writers need not wait long.
    pub has_more: bool,
}
