//! Alert rules, and which rule applies to which bucket.

use std::collections::BTreeMap;

use crate::analyse::Confidence;
use crate::sample::BucketId;
use crate::severity::{Severity, Thresholds};

const MINUTE_US: u64 = 60_000_000;

/// When the alert of one bucket is raised, resolved and sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertRule {
    thresholds: Thresholds,
    resolve_after_us: u64,
    predict_within_us: u64,
    page_within_us: u64,
    predict_confidence: Confidence,
    predicted_severity: Severity,
    confirm_after_us: u64,
    confirm_below_bp: u32,
    remind_every_us: [Option<u64>; 4],
}

impl AlertRule {
    /// Returns the thresholds of the severities.
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Returns how long a bucket must have recovered before its severity is lowered. A bucket that
    /// refills in large steps is full for a moment of every period, however much is consumed.
    pub const fn resolve_after_us(&self) -> u64 {
        self.resolve_after_us
    }

    /// Returns the time within which a bucket must be expected to be empty for a forecast to be sent.
    /// Zero disables forecasts.
    pub const fn predict_within_us(&self) -> u64 {
        self.predict_within_us
    }

    /// Returns the time within which a bucket must be expected to be empty for its forecast to be
    /// routed as CRITICAL, which pages somebody. Zero disables that.
    pub const fn page_within_us(&self) -> u64 {
        self.page_within_us
    }

    /// Returns the least confidence of a forecast that is sent.
    pub const fn predict_confidence(&self) -> Confidence {
        self.predict_confidence
    }

    /// Returns the severity by which forecasts are routed.
    pub const fn predicted_severity(&self) -> Severity {
        self.predicted_severity
    }

    /// Returns how long a forecast of low confidence must have been made by every sample before it is
    /// sent. Zero sends it at once.
    pub const fn confirm_after_us(&self) -> u64 {
        self.confirm_after_us
    }

    /// Returns the share of capacity left, in basis points, above which forecasts of low confidence
    /// are not sent.
    pub const fn confirm_below_bp(&self) -> u32 {
        self.confirm_below_bp
    }

    /// Returns the interval of the reminders of an open alert; `None` for no reminders.
    pub const fn remind_every_us(&self, severity: Severity) -> Option<u64> {
        self.remind_every_us[severity as usize]
    }

    /// Replaces the thresholds.
    pub fn with_thresholds(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    /// Replaces the time that a recovery must last.
    pub fn with_resolve_after_us(self, resolve_after_us: u64) -> Self {
        Self {
            resolve_after_us,
            ..self
        }
    }

    /// Sends an alert of `severity` when a bucket is forecast, with at least `confidence`, to be empty
    /// within `within_us`.
    pub fn with_predictions(
        self,
        within_us: u64,
        confidence: Confidence,
        severity: Severity,
    ) -> Self {
        Self {
            predict_within_us: within_us,
            predict_confidence: confidence,
            predicted_severity: severity,
            ..self
        }
    }

    /// Replaces the time within which a forecast is routed as CRITICAL.
    pub fn with_page_within_us(self, page_within_us: u64) -> Self {
        Self {
            page_within_us,
            ..self
        }
    }

    /// Sends forecasts of low confidence if every sample has made them for `after_us`, and no more than
    /// `below_bp` basis points of the capacity are left.
    pub fn with_confirmation(self, after_us: u64, below_bp: u32) -> Self {
        Self {
            confirm_after_us: after_us,
            confirm_below_bp: below_bp,
            ..self
        }
    }

    /// Replaces the interval of the reminders of one severity; `None` for no reminders.
    pub fn with_reminders(mut self, severity: Severity, every_us: Option<u64>) -> Self {
        // An interval of zero would send a reminder with every evaluation.
        self.remind_every_us[severity as usize] = every_us.map(|us| us.max(1));
        self
    }
}

impl Default for AlertRule {
    /// The default thresholds; recoveries of two minutes; forecasts of the next ten minutes with any
    /// confidence, routed as WARNING, and those of the next five minutes as CRITICAL; those of low
    /// confidence after half a minute, at a quarter of the capacity or less; reminders of WARNING every
    /// 4 hours, of CRITICAL every hour, of EXHAUSTED every 15 minutes.
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            resolve_after_us: 2 * MINUTE_US,
            predict_within_us: 10 * MINUTE_US,
            page_within_us: 5 * MINUTE_US,
            predict_confidence: Confidence::Low,
            predicted_severity: Severity::Warning,
            confirm_after_us: MINUTE_US / 2,
            confirm_below_bp: 2_500,
            remind_every_us: [
                None,
                Some(240 * MINUTE_US),
                Some(60 * MINUTE_US),
                Some(15 * MINUTE_US),
            ],
        }
    }
}

/// The rules of all buckets: the rule of the bucket if there is one, else that of its policy, else
/// the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertRules {
    default: AlertRule,
    by_policy: BTreeMap<String, AlertRule>,
    by_bucket: BTreeMap<BucketId, AlertRule>,
}

impl AlertRules {
    /// Uses one rule for all buckets.
    pub fn new(default: AlertRule) -> Self {
        Self {
            default,
            ..Self::default()
        }
    }

    /// Adds a rule for the buckets of one policy, for all participants.
    pub fn with_policy(mut self, policy: impl Into<String>, rule: AlertRule) -> Self {
        self.by_policy.insert(policy.into(), rule);
        self
    }

    /// Adds a rule for one bucket, which takes precedence over the rule of its policy.
    pub fn with_bucket(mut self, bucket: BucketId, rule: AlertRule) -> Self {
        self.by_bucket.insert(bucket, rule);
        self
    }

    /// Returns the rule that applies to a bucket.
    pub fn rule(&self, bucket: &BucketId) -> &AlertRule {
        let of_policy = || self.by_policy.get(bucket.policy());
        let own = self.by_bucket.get(bucket).or_else(of_policy);
        own.unwrap_or(&self.default)
    }
}

/// When the data of a participant is stale, and the severities by which alerts about stale data and
/// about changed limits are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalenessRule {
    /// Data older than this is stale.
    pub stale_after_us: u64,
    /// The severity by which alerts about stale data are routed.
    pub stale_severity: Severity,
    /// The interval of the reminders while the data is stale; `None` for no reminders.
    pub remind_every_us: Option<u64>,
    /// The severity by which changes of category, capacity, refill or policies are routed.
    pub changed_severity: Severity,
}

impl Default for StalenessRule {
    /// Stale after 11 minutes, which is two missed polls at five minutes, routed as CRITICAL with
    /// reminders every hour; changes are routed as WARNING.
    fn default() -> Self {
        Self {
            stale_after_us: 11 * MINUTE_US,
            stale_severity: Severity::Critical,
            remind_every_us: Some(60 * MINUTE_US),
            changed_severity: Severity::Warning,
        }
    }
}
