//! Silences: what nobody wants to hear about for a while.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::severity::Severity;

/// The longest silence: thirty days. What must be quiet for longer needs other thresholds.
pub const SILENCE_MAX_US: u64 = 30 * 86_400 * 1_000_000;

/// A time in which some alerts are not delivered. They are still worked out and recorded, and what
/// is still so when the silence ends is told then.
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
    /// Everything up to and including `up_to`, from `from_us` until just before `until_us`. For an
    /// outage that must be heard in spite of planned work, name CRITICAL.
    pub fn new(
        id: impl Into<String>,
        up_to: Severity,
        from_us: u64,
        until_us: u64,
    ) -> Result<Self, SilenceError> {
        if until_us <= from_us || until_us - from_us > SILENCE_MAX_US {
            return Err(SilenceError { from_us, until_us });
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

    /// The same for one participant only.
    pub fn of_participant(self, participant: impl Into<String>) -> Self {
        Self {
            participant: Some(participant.into()),
            ..self
        }
    }

    /// The same for one policy only.
    pub fn of_policy(self, policy: impl Into<String>) -> Self {
        Self {
            policy: Some(policy.into()),
            ..self
        }
    }

    /// The id that events name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it begins.
    pub const fn from_us(&self) -> u64 {
        self.from_us
    }

    /// When it is over.
    pub const fn until_us(&self) -> u64 {
        self.until_us
    }

    /// Whether it covers something at a moment. A silence of one policy does not cover what
    /// concerns a participant as a whole.
    pub fn covers(
        &self,
        participant: &str,
        policy: Option<&str>,
        severity: Severity,
        now_us: u64,
    ) -> bool {
        let is_whose = |whose: &Option<String>| whose.as_deref().is_none_or(|p| p == participant);
        let is_which = self.policy.is_none() || self.policy.as_deref() == policy;
        (self.from_us..self.until_us).contains(&now_us)
            && severity <= self.up_to
            && is_whose(&self.participant)
            && is_which
    }
}

/// The silence ends before it begins, or lasts longer than [`SILENCE_MAX_US`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilenceError {
    from_us: u64,
    until_us: u64,
}

impl fmt::Display for SilenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.until_us <= self.from_us {
            f.write_str("the silence ends before it begins; exchange the two times")
        } else {
            f.write_str(
                "the silence lasts longer than 30 days; shorten it, or change the policy's \
                 thresholds",
            )
        }
    }
}

impl std::error::Error for SilenceError {}

/// The first silence that covers something.
pub(crate) fn covering<'a>(
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
