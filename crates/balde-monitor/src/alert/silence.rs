//! Silences: times during which some alerts are not sent.

use serde::{Deserialize, Serialize};

use super::open::OpenAlert;
use crate::severity::Severity;

/// The longest silence: 30 days. Alerts that are unwanted for longer need other thresholds.
pub const SILENCE_MAX_US: u64 = 30 * 86_400 * 1_000_000;

/// A time during which some alerts are not sent. They are still evaluated, recorded and logged, and
/// an alert that is still open when the silence ends is sent then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    id: String,
    participant: Option<String>,
    policy: Option<String>,
    up_to: Severity,
    from_us: u64,
    until_us: u64,
    /// Who created it; silences of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<Acknowledged>,
}

/// The alert that a silence acknowledges, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Acknowledged {
    episode: String,
    by: String,
}

impl Silence {
    /// Silences severities up to and including `up_to`, from `from_us` until just before `until_us`.
    /// With `up_to` CRITICAL, an exhausted bucket is still sent during planned work.
    pub fn new(
        id: impl Into<String>,
        up_to: Severity,
        from_us: u64,
        until_us: u64,
    ) -> Result<Self, SilenceError> {
        if until_us <= from_us {
            return Err(SilenceError::EndsBeforeStart);
        }
        if until_us - from_us > SILENCE_MAX_US {
            return Err(SilenceError::TooLong);
        }
        Ok(Self {
            id: id.into(),
            participant: None,
            policy: None,
            up_to,
            from_us,
            until_us,
            by: None,
            acknowledged: None,
        })
    }

    /// Acknowledges an open alert: its reminders are not sent until it gets worse, is over, or
    /// [`SILENCE_MAX_US`] have passed. Other alerts of the bucket or participant are not covered, nor
    /// is the next one.
    pub fn acknowledgement(alert: &OpenAlert, by: impl Into<String>, now_us: u64) -> Self {
        let episode = alert.episode.clone();
        let by = by.into();
        Self {
            id: format!("acknowledged/{episode}"),
            participant: Some(alert.participant.clone()),
            policy: alert.policy.clone(),
            up_to: alert.severity,
            from_us: now_us,
            until_us: now_us.saturating_add(SILENCE_MAX_US),
            by: Some(by.clone()),
            acknowledged: Some(Acknowledged { episode, by }),
        }
    }

    /// The episode that this silence acknowledges; `None` for any other silence.
    pub fn acknowledged_episode(&self) -> Option<&str> {
        self.acknowledged
            .as_ref()
            .map(|acknowledged| acknowledged.episode.as_str())
    }

    /// Names who created the silence.
    pub fn created_by(self, by: impl Into<String>) -> Self {
        Self {
            by: Some(by.into()),
            ..self
        }
    }

    /// Returns who created the silence, if that is known.
    pub fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Returns the participant that the silence is limited to; `None` for all.
    pub fn participant(&self) -> Option<&str> {
        self.participant.as_deref()
    }

    /// Returns the policy that the silence is limited to; `None` for all.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Returns the worst severity that is not sent.
    pub const fn up_to(&self) -> Severity {
        self.up_to
    }

    /// Returns who acknowledged an episode with this silence.
    pub fn acknowledged_by(&self, episode: &str) -> Option<&str> {
        let acknowledged = self.acknowledged.as_ref()?;
        (acknowledged.episode == episode).then_some(acknowledged.by.as_str())
    }

    /// Limits the silence to one participant.
    pub fn of_participant(self, participant: impl Into<String>) -> Self {
        Self {
            participant: Some(participant.into()),
            ..self
        }
    }

    /// Limits the silence to one policy.
    pub fn of_policy(self, policy: impl Into<String>) -> Self {
        Self {
            policy: Some(policy.into()),
            ..self
        }
    }

    /// Returns the id. The events that this silence covers have it in `silenced_by`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns when it begins.
    pub const fn from_us(&self) -> u64 {
        self.from_us
    }

    /// Returns when it ends.
    pub const fn until_us(&self) -> u64 {
        self.until_us
    }

    /// Returns true if it covers a severity at `now_us`. A silence of one policy does not cover
    /// events that concern a whole participant.
    pub fn covers(
        &self,
        participant: &str,
        policy: Option<&str>,
        severity: Severity,
        now_us: u64,
    ) -> bool {
        let covers_participant = self.participant.as_deref().is_none_or(|p| p == participant);
        let covers_policy = self.policy.is_none() || self.policy.as_deref() == policy;
        (self.from_us..self.until_us).contains(&now_us)
            && severity <= self.up_to
            && covers_participant
            && covers_policy
    }
}

/// Why the times of a silence were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SilenceError {
    /// The silence ends before it begins.
    #[error("the silence ends before it begins; exchange the two times")]
    EndsBeforeStart,
    /// The silence lasts longer than [`SILENCE_MAX_US`].
    #[error("the silence lasts longer than 30 days; shorten it, or change the policy's thresholds")]
    TooLong,
}

/// Returns the id of the first silence that covers a severity at `now_us`. An acknowledgement covers
/// its own episode only.
pub(super) fn covering<'a>(
    silences: &'a [Silence],
    participant: &str,
    policy: Option<&str>,
    episode: Option<&str>,
    severity: Severity,
    now_us: u64,
) -> Option<&'a str> {
    let is_of_episode = |silence: &&Silence| match &silence.acknowledged {
        Some(acknowledged) => episode == Some(acknowledged.episode.as_str()),
        None => true,
    };
    silences
        .iter()
        .filter(is_of_episode)
        .find(|silence| silence.covers(participant, policy, severity, now_us))
        .map(Silence::id)
}
