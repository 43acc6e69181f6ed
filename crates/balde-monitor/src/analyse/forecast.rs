//! When a bucket will be at a level, if it goes on like this.

use crate::analyse::trend::{Rate, Trend};
use serde::{Deserialize, Serialize};

use crate::sample::Sample;

/// How sure a forecast is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The bounds allow it and do not prove it. A bucket that refills in steps falls between them
    /// however little is used, so this is seen in health, too.
    Low,
    /// Even the lower bound of the present rate leads there, by two samples.
    Medium,
    /// Even the lower bound does, by three samples or more; or it is so already.
    High,
}

/// How long until a level is reached at the present rate, from the newest sample on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    earliest_us: u64,
    expected_us: Option<u64>,
    latest_us: Option<u64>,
    confidence: Confidence,
}

impl Forecast {
    /// If consumption was as high as the samples allow.
    pub const fn earliest_us(&self) -> u64 {
        self.earliest_us
    }

    /// At the best guess; nothing when by that the level is never reached.
    pub const fn expected_us(&self) -> Option<u64> {
        self.expected_us
    }

    /// If consumption was as low as the samples allow; nothing when it would never be reached.
    pub const fn latest_us(&self) -> Option<u64> {
        self.latest_us
    }

    /// How sure it is.
    pub const fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// The outlook on `tokens` left. Nothing when not even the highest consumption leads there.
    pub(crate) fn on(tokens: i64, newest: &Sample, trend: Option<&Trend>) -> Option<Self> {
        if newest.level() <= tokens {
            return Some(Self {
                earliest_us: 0,
                expected_us: Some(0),
                latest_us: Some(0),
                confidence: Confidence::High,
            });
        }
        let trend = trend?;
        let distance = i128::from(newest.level()) - i128::from(tokens);
        let after = |rate: Rate| rate.falls_us(distance, newest.limit());
        let latest_us = after(trend.at_least);
        Some(Self {
            earliest_us: after(trend.at_most)?,
            expected_us: after(trend.expected),
            latest_us,
            confidence: match latest_us {
                Some(_) if trend.samples >= 3 => Confidence::High,
                Some(_) => Confidence::Medium,
                None => Confidence::Low,
            },
        })
    }
}

/// Bounds on the time until a bucket that nobody touches is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeToFull {
    /// Not before this, however it refills.
    pub at_least_us: u64,
    /// By then, however it refills.
    pub at_most_us: u64,
}

impl TimeToFull {
    /// For a bucket as sampled; nothing when it never refills. The last refill that it needs may
    /// come at any moment of its period, which covers continuous and stepwise refill alike.
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

/// How long until a bucket is full if consumption goes on at the present rate; nothing when it
/// never will be.
pub(crate) fn time_to_full_at_rate_us(newest: &Sample, trend: Option<&Trend>) -> Option<u64> {
    let limit = newest.limit();
    let missing = i128::from(limit.capacity()) - i128::from(newest.level());
    if missing <= 0 {
        return Some(0);
    }
    trend?.expected.rises_us(missing, limit)
}
