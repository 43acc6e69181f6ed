//! The state of one bucket's alert.

use serde::{Deserialize, Serialize};

use crate::analyse::Assessment;
use crate::sample::BucketId;
use crate::severity::Severity;

/// The state of one bucket's alert, stored between evaluations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertState {
    /// The bucket.
    pub bucket: BucketId,
    /// When this state was created. It is part of every event key, so that a new database never
    /// repeats the keys of a lost one.
    pub epoch_us: u64,
    /// The sequence number of the next event.
    pub sequence: u64,
    /// The current severity. Silences do not change it.
    pub severity: Severity,
    /// When `severity` last changed.
    pub since_us: u64,
    /// The sequence number of the event that opened the current episode.
    pub episode: u64,
    /// The worst severity of the current episode.
    pub peak: Severity,
    /// The severity that receivers know of: the worst one sent, lowered together with `severity`.
    /// NORMAL if silences covered everything so far.
    pub notified: Severity,
    /// When the severity was last sent or lowered. Reminders are due by this time.
    pub notified_us: u64,
    /// Set while the level has recovered, but not yet for as long as the rule requires.
    pub clearing: Option<Clearing>,
    /// The open forecast that the bucket will be empty.
    pub forecast: Option<Forecast>,
    /// Since when every sample has led to a forecast of low confidence that was not sent yet.
    #[serde(default)]
    pub unconfirmed_since_us: Option<u64>,
    /// The time of the newest sample that was evaluated.
    pub sampled_us: Option<u64>,
    /// The level of that sample.
    pub level: Option<i64>,
    /// The capacity of that sample.
    pub capacity: Option<u64>,
    /// The recovery time from that sample on.
    #[serde(default)]
    pub recovery_us: Option<u64>,
}

/// A recovery that has not lasted for the rule's
/// [`resolve_after_us`](crate::alert::AlertRule::resolve_after_us) yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clearing {
    /// Since when the level has been better.
    pub since_us: u64,
    /// The worst severity since then.
    pub worst: Severity,
}

/// An open forecast that the bucket will be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The sequence number of the event that announced it.
    pub episode: u64,
    /// When it was made.
    pub since_us: u64,
    /// Whether it was sent; false if a silence covered it.
    pub is_notified: bool,
    /// The worst severity by which it was routed: CRITICAL if little time was left.
    #[serde(default = "warning")]
    pub severity: Severity,
    /// Since when the bucket has no longer been expected to be empty soon.
    pub clearing_since_us: Option<u64>,
}

impl AlertState {
    /// The initial state of a bucket: NORMAL, without any events.
    ///
    /// Store it before its first evaluation. Only then does an evaluation that is repeated after a
    /// crash produce events with the same keys.
    pub fn new(bucket: BucketId, now_us: u64) -> Self {
        Self {
            bucket,
            epoch_us: now_us,
            sequence: 0,
            severity: Severity::Normal,
            since_us: now_us,
            episode: 0,
            peak: Severity::Normal,
            notified: Severity::Normal,
            notified_us: now_us,
            clearing: None,
            forecast: None,
            unconfirmed_since_us: None,
            sampled_us: None,
            level: None,
            capacity: None,
            recovery_us: None,
        }
    }

    /// Returns true if the assessment is of this bucket and has not been evaluated yet.
    pub(super) fn is_new(&self, assessment: &Assessment<'_>, now_us: u64) -> bool {
        let taken_us = assessment.sample().taken_us();
        // If the clock was set back to before the newest sample, older times are new.
        let is_later = |sampled_us| taken_us > sampled_us || sampled_us > now_us;
        *assessment.sample().bucket() == self.bucket && self.sampled_us.is_none_or(is_later)
    }
}

/// The severity of forecasts that were stored before it was.
const fn warning() -> Severity {
    Severity::Warning
}
