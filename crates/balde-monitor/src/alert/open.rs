//! Alerts that are open, whatever they are about: what operators acknowledge and close.

use super::event::MONITOR;
use crate::severity::Severity;

/// An alert that is open: about a bucket's level, a forecast, stale data, or the monitor's database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenAlert {
    /// The key that all its events have in common.
    pub episode: String,
    /// The participant, or [`MONITOR`] for the database.
    pub participant: String,
    /// The policy of the bucket; `None` if the alert concerns more than one bucket.
    pub policy: Option<String>,
    /// The severity now. An acknowledgement covers reminders up to this one.
    pub severity: Severity,
    /// The worst severity so far, by which events about the alert are routed.
    pub peak: Severity,
    /// The tokens left in the bucket, if it is about one.
    pub level: Option<i64>,
    /// The capacity of the bucket.
    pub capacity: Option<u64>,
    /// The recovery time of the bucket.
    pub recovery_us: Option<u64>,
}

impl OpenAlert {
    /// The alert about the monitor's database.
    pub(super) fn about_storage(episode: String) -> Self {
        Self::without_bucket(episode, MONITOR.to_owned(), Severity::Critical)
    }

    /// An alert that concerns more than one bucket.
    pub(super) const fn without_bucket(
        episode: String,
        participant: String,
        severity: Severity,
    ) -> Self {
        Self {
            episode,
            participant,
            policy: None,
            severity,
            peak: severity,
            level: None,
            capacity: None,
            recovery_us: None,
        }
    }
}
