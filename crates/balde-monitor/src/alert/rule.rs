//! By which rules alerts are raised, and for which bucket which rule holds.

use std::collections::BTreeMap;

use crate::analyse::Confidence;
use crate::sample::BucketId;
use crate::severity::{Severity, Thresholds};

const MINUTE_US: u64 = 60_000_000;

/// How one bucket is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertRule {
    thresholds: Thresholds,
    resolve_after_us: u64,
    predict_within_us: u64,
    predict_confidence: Confidence,
    predicted_as: Severity,
    remind_us: [Option<u64>; 4],
}

impl AlertRule {
    /// The thresholds.
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// How long it must have been better before that is told. A bucket that refills in large steps
    /// is full for a moment of every period, however hard it is pressed.
    pub const fn resolve_after_us(&self) -> u64 {
        self.resolve_after_us
    }

    /// A bucket expected to be empty within this is told; zero tells none.
    pub const fn predict_within_us(&self) -> u64 {
        self.predict_within_us
    }

    /// How sure a forecast must be to be told.
    pub const fn predict_confidence(&self) -> Confidence {
        self.predict_confidence
    }

    /// The severity whose routes a prediction takes.
    pub const fn predicted_as(&self) -> Severity {
        self.predicted_as
    }

    /// How often an open alert is told again; nothing for never.
    pub const fn remind_us(&self, severity: Severity) -> Option<u64> {
        self.remind_us[severity as usize]
    }

    /// The same with other thresholds.
    pub fn with_thresholds(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    /// The same with another calm.
    pub fn with_resolve_after_us(self, resolve_after_us: u64) -> Self {
        Self { resolve_after_us, ..self }
    }

    /// The same with other predictions.
    pub fn with_predictions(self, within_us: u64, confidence: Confidence, like: Severity) -> Self {
        Self {
            predict_within_us: within_us,
            predict_confidence: confidence,
            predicted_as: like,
            ..self
        }
    }

    /// The same with reminders of one severity `every_us`, or none.
    pub fn with_reminders(mut self, severity: Severity, every_us: Option<u64>) -> Self {
        // A reminder every zero microseconds would be one with every step.
        self.remind_us[severity as usize] = every_us.map(|us| us.max(1));
        self
    }
}

impl Default for AlertRule {
    /// The default thresholds; two calm minutes; predictions of the next ten minutes, at least of
    /// medium confidence, like a WARNING; reminders every 4 hours, 1 hour, 15 minutes.
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            resolve_after_us: 2 * MINUTE_US,
            predict_within_us: 10 * MINUTE_US,
            predict_confidence: Confidence::Medium,
            predicted_as: Severity::Warning,
            remind_us: [
                None,
                Some(240 * MINUTE_US),
                Some(60 * MINUTE_US),
                Some(15 * MINUTE_US),
            ],
        }
    }
}

/// Which rule holds for which bucket: the bucket's own, else the policy's, else the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertRules {
    default: AlertRule,
    by_policy: BTreeMap<String, AlertRule>,
    by_bucket: BTreeMap<BucketId, AlertRule>,
}

impl AlertRules {
    /// One rule for all.
    pub fn new(default: AlertRule) -> Self {
        Self {
            default,
            ..Self::default()
        }
    }

    /// The same with a rule of its own for a policy, of whichever participant.
    pub fn with_policy(mut self, policy: impl Into<String>, rule: AlertRule) -> Self {
        self.by_policy.insert(policy.into(), rule);
        self
    }

    /// The same with a rule of its own for one bucket.
    pub fn with_bucket(mut self, bucket: BucketId, rule: AlertRule) -> Self {
        self.by_bucket.insert(bucket, rule);
        self
    }

    /// The rule for a bucket.
    pub fn rule(&self, bucket: &BucketId) -> &AlertRule {
        let of_policy = || self.by_policy.get(bucket.policy());
        let own = self.by_bucket.get(bucket).or_else(of_policy);
        own.unwrap_or(&self.default)
    }
}

/// How the data about a participant is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalenessRule {
    /// Nothing new for longer than this is an alert.
    pub stale_after_us: u64,
    /// Like this severity.
    pub stale_as: Severity,
    /// Told again this often; nothing for never.
    pub stale_remind_us: Option<u64>,
    /// The severity whose routes a change of category, capacity, refill or policies takes.
    pub changed_as: Severity,
}

impl Default for StalenessRule {
    /// Stale after eleven minutes, which is two polls of five minutes missed, like CRITICAL and
    /// again every hour; changes like WARNING.
    fn default() -> Self {
        Self {
            stale_after_us: 11 * MINUTE_US,
            stale_as: Severity::Critical,
            stale_remind_us: Some(60 * MINUTE_US),
            changed_as: Severity::Warning,
        }
    }
}
