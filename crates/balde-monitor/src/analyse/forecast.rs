//! Forecasts: when a bucket will reach a level at the current rate of consumption.

use serde::{Deserialize, Serialize};

use crate::analyse::outlook::Outlook;
use crate::sample::Sample;

/// Confidence is high if the rate has lasted for this share of the expected time, in percent.
const HIGH_EVIDENCE_PCT: u64 = 1_000;

/// How certain a forecast is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// It is possible that the level is reached, not before the earliest time. The rate is new, or
    /// changes, or is hardly above the refill, so there is no latest time.
    Low,
    /// The rate has been the same for five times as long as the forecast reaches.
    Medium,
    /// The rate has been the same for ten times as long; or the level has been reached already.
    High,
}

/// The time from the newest sample until a level is reached at the current rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    earliest_us: u64,
    expected_us: Option<u64>,
    latest_us: Option<u64>,
    confidence: Confidence,
}

impl Forecast {
    /// The time at the highest consumption that the samples allow.
    pub const fn earliest_us(&self) -> u64 {
        self.earliest_us
    }

    /// The time at the estimated consumption; `None` if that never reaches the level.
    pub const fn expected_us(&self) -> Option<u64> {
        self.expected_us
    }

    /// The time at the lowest consumption that the samples allow; `None` if that never reaches the
    /// level.
    pub const fn latest_us(&self) -> Option<u64> {
        self.latest_us
    }

    /// How certain the forecast is.
    pub const fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// Forecasts when `tokens` will be left. Returns `None` if not even the highest consumption
    /// leads there.
    pub(crate) fn of(tokens: i64, newest: &Sample, outlook: Option<&Outlook>) -> Option<Self> {
        if newest.level() <= tokens {
            return Some(Self {
                earliest_us: 0,
                expected_us: Some(0),
                latest_us: Some(0),
                confidence: Confidence::High,
            });
        }
        let bounds = outlook?.time_to(tokens)?;
        Some(Self {
            earliest_us: bounds.earliest_us,
            expected_us: bounds.expected_us,
            latest_us: bounds.latest_us,
            confidence: match bounds.latest_us {
                Some(_) if bounds.evidence_pct >= HIGH_EVIDENCE_PCT => Confidence::High,
                Some(_) => Confidence::Medium,
                None => Confidence::Low,
            },
        })
    }
}

/// Bounds on the time until an unused bucket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeToFull {
    /// The lower bound, for any kind of refill.
    pub at_least_us: u64,
    /// The upper bound, for any kind of refill.
    pub at_most_us: u64,
}

impl TimeToFull {
    /// Computes the bounds from a sample; `None` if the bucket never refills. The last refill may
    /// happen at any moment of its period, which covers continuous and stepwise refill.
    pub(crate) fn of(sample: &Sample) -> Option<Self> {
        let limit = sample.limit();
        let missing = i128::from(limit.capacity()) - i128::from(sample.level());
        let Ok(missing) = u64::try_from(missing.max(0)) else {
            return None;
        };
        if missing == 0 {
            return Some(Self {
                at_least_us: 0,
                at_most_us: 0,
            });
        }
        if limit.refill_tokens() == 0 {
            return None;
        }
        let refills = missing.div_ceil(limit.refill_tokens());
        Some(Self {
            at_least_us: (refills - 1).saturating_mul(limit.period_us()),
            at_most_us: refills.saturating_mul(limit.period_us()),
        })
    }
}

/// The time until a bucket is full at the current rate of consumption; `None` if it never will be.
pub(crate) fn time_to_full_at_rate_us(newest: &Sample, outlook: Option<&Outlook>) -> Option<u64> {
    let limit = newest.limit();
    let missing = i128::from(limit.capacity()) - i128::from(newest.level());
    if missing <= 0 {
        return Some(0);
    }
    outlook?.time_to_rise_us(missing)
}
