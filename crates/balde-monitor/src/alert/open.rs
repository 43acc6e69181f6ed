//! Alerts that are open, whatever they are about: what operators acknowledge and close.

use super::event::{MONITOR, episode};
use super::rule::StalenessRule;
use super::staleness::StalenessCheck;
use super::state::AlertState;
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

impl AlertState {
    /// The key that the events of the open alert about the level have in common; `None` if the
    /// severity is NORMAL.
    pub fn open_episode(&self) -> Option<String> {
        let is_open = self.severity > Severity::Normal;
        is_open.then(|| self.episode_of(self.episode, "level"))
    }

    /// The key that the events of the open forecast have in common; `None` if there is no forecast.
    pub fn forecast_episode(&self) -> Option<String> {
        let forecast = self.forecast?;
        Some(self.episode_of(forecast.episode, "forecast"))
    }

    /// The open alerts of the bucket, that about the level first.
    pub fn open_alerts(&self) -> impl Iterator<Item = OpenAlert> {
        let level = self.open_episode();
        let level = level.map(|episode| self.open_alert(episode, self.severity, self.peak));
        let forecast = self.forecast_episode().zip(self.forecast);
        let forecast = forecast.map(|(episode, forecast)| {
            self.open_alert(episode, forecast.severity, forecast.severity)
        });
        level.into_iter().chain(forecast)
    }

    fn open_alert(&self, episode: String, severity: Severity, peak: Severity) -> OpenAlert {
        OpenAlert {
            episode,
            participant: self.bucket.participant().to_owned(),
            policy: Some(self.bucket.policy().to_owned()),
            severity,
            peak,
            level: self.level,
            capacity: self.capacity,
            recovery_us: self.recovery_us,
        }
    }

    fn episode_of(&self, sequence: u64, group: &str) -> String {
        let subject = format!("{}/{}", self.bucket.participant(), self.bucket.policy());
        episode(&subject, self.epoch_us, sequence, group)
    }
}

impl StalenessCheck {
    /// The key that the events of the open alert about stale data have in common; `None` if the data
    /// is not stale.
    pub fn open_episode(&self) -> Option<String> {
        let stale = self.stale?;
        Some(episode(
            &self.participant,
            self.epoch_us,
            stale.episode,
            "stale",
        ))
    }

    /// The open alert about stale data.
    pub fn open_alert(&self, rule: &StalenessRule) -> Option<OpenAlert> {
        let participant = self.participant.clone();
        let episode = self.open_episode()?;
        Some(OpenAlert::without_bucket(
            episode,
            participant,
            rule.stale_severity,
        ))
    }
}

impl OpenAlert {
    /// The alert about the monitor's database.
    pub(super) fn about_storage(episode: String) -> Self {
        Self::without_bucket(episode, MONITOR.to_owned(), Severity::Critical)
    }

    fn without_bucket(episode: String, participant: String, severity: Severity) -> Self {
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
