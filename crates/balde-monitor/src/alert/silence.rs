//! Silences: times during which some alerts are not sent.

use serde::{Deserialize, Serialize};

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
        })
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

/// Returns the id of the first silence that covers a severity at `now_us`.
pub(super) fn covering<'a>(
    silences: &'a [Silence],
    participant: &str,
    policy: Option<&str>,
    severity: Severity,
    now_us: u64,
) -> Option<&'a str> {
    silences
        .iter()
        .find(|silence| silence.covers(participant, policy, severity, now_us))
        .map(Silence::id)
}
