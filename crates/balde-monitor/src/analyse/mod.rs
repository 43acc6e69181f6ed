//! What samples say about a bucket: how full, how fast, how long still.

mod burn;
mod change;
mod consumption;
mod outlook;
mod settings;
mod trend;

pub use burn::{Burn, LOOK_BACK_MAX};
pub use change::{Change, Freshness, changes};
pub use consumption::{Consumption, Credits};
pub use outlook::{Confidence, FullAfter, Outlook};
pub use settings::{HORIZONS_MAX, HorizonsError, Settings};

use crate::analyse::trend::Trend;
use crate::sample::Sample;
use crate::severity::{Severity, Thresholds, WHOLE_BP};

/// All that is known about a bucket as of its newest sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment<'a> {
    sample: &'a Sample,
    thresholds: Thresholds,
    burns: Vec<Burn>,
    trend: Option<Trend>,
}

impl<'a> Assessment<'a> {
    /// From one bucket's samples, the newest last; nothing without any.
    pub fn of(history: &'a [Sample], thresholds: Thresholds, settings: &Settings) -> Option<Self> {
        let burns = burn::burns(history, settings);
        // Where polls failed for longer than the shortest horizon, a longer one would pass for the
        // present, whatever the newest samples say.
        let shortest_us = settings.horizons_us().first().copied().unwrap_or(0);
        let is_present = |burn: &Burn| burn.horizon_us() == shortest_us;
        let newest = match burns.first() {
            Some(first) if !is_present(first) => burn::newest(history, settings),
            _ => None,
        };
        Some(Self {
            sample: history.last()?,
            thresholds,
            trend: Trend::of(newest.iter().chain(&burns)),
            burns,
        })
    }

    /// The newest sample.
    pub const fn sample(&self) -> &'a Sample {
        self.sample
    }

    /// The thresholds it is judged by.
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// How bad the level is by itself, whatever it was before.
    pub fn severity(&self) -> Severity {
        self.thresholds
            .severity(self.sample.level(), self.sample.limit())
    }

    /// The share of capacity in use, in hundredths of a percent; above 10,000 in debt.
    pub fn utilisation_bp(&self) -> i64 {
        i64::from(WHOLE_BP) - self.left_bp()
    }

    /// The share of capacity left, in hundredths of a percent, rounded down; negative in debt.
    pub fn left_bp(&self) -> i64 {
        let capacity = i128::from(self.sample.limit().capacity().max(1));
        let left = i128::from(self.sample.level()) * i128::from(WHOLE_BP);
        consumption::saturated(left.div_euclid(capacity))
    }

    /// Consumption over each horizon that has samples, the shortest first.
    pub fn burns(&self) -> &[Burn] {
        &self.burns
    }

    /// How long until a severity holds; nothing for NORMAL, and for what will not be.
    pub fn to(&self, severity: Severity) -> Option<Outlook> {
        let tokens = self.thresholds.tokens(severity, self.sample.limit())?;
        Outlook::on(tokens, self.sample, self.trend.as_ref())
    }

    /// How long until WARNING.
    pub fn to_warning(&self) -> Option<Outlook> {
        self.to(Severity::Warning)
    }

    /// How long until CRITICAL.
    pub fn to_critical(&self) -> Option<Outlook> {
        self.to(Severity::Critical)
    }

    /// How long until the bucket is empty.
    pub fn to_empty(&self) -> Option<Outlook> {
        self.to(Severity::Exhausted)
    }

    /// How long until the bucket is full if nobody touches it; nothing when it never refills.
    pub fn full_after(&self) -> Option<FullAfter> {
        FullAfter::of(self.sample)
    }

    /// How long until the bucket is full at the present rate; nothing when it never will be.
    pub fn full_at_rate_us(&self) -> Option<u64> {
        outlook::full_at_rate_us(self.sample, self.trend.as_ref())
    }

    /// How long an empty bucket takes to be full: (capacity / refill) × period.
    pub fn recovery_us(&self) -> Option<u64> {
        let limit = self.sample.limit();
        if limit.refill_tokens() == 0 {
            return None;
        }
        let us = u128::from(limit.capacity()) * u128::from(limit.period_us());
        let us = us.div_ceil(u128::from(limit.refill_tokens()));
        Some(u64::try_from(us).unwrap_or(u64::MAX))
    }
}
