//! What samples say about a bucket: how full, how fast, how long still.

mod burn_rate;
mod by_policy;
mod change;
mod consumption;
mod forecast;
mod settings;
mod trend;

pub use burn_rate::{BurnRate, LOOKBACK_SAMPLES_MAX};
pub use by_policy::SettingsByPolicy;
pub use change::{Change, Freshness, changes};
pub use consumption::{Consumption, Credits};
pub use forecast::{Confidence, Forecast, TimeToFull};
pub use settings::{AnalysisSettings, WINDOWS_MAX, WindowsError};

use crate::analyse::trend::Trend;
use crate::sample::Sample;
use crate::severity::{Severity, Thresholds, WHOLE_BP};

/// All that is known about a bucket as of its newest sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment<'a> {
    sample: &'a Sample,
    thresholds: Thresholds,
    burn_rates: Vec<BurnRate>,
    trend: Option<Trend>,
}

impl<'a> Assessment<'a> {
    /// From one bucket's samples, the newest last; nothing without any.
    pub fn of(
        history: &'a [Sample],
        thresholds: Thresholds,
        settings: &AnalysisSettings,
    ) -> Option<Self> {
        let burn_rates = burn_rate::burn_rates(history, settings);
        // Where polls failed for longer than the shortest window, a longer one would pass for the
        // present, whatever the newest samples say.
        let shortest_us = settings.windows_us().first().copied().unwrap_or(0);
        let is_present = |burn: &BurnRate| burn.window_us() == shortest_us;
        let newest = match burn_rates.first() {
            Some(first) if !is_present(first) => burn_rate::newest(history, settings),
            _ => None,
        };
        Some(Self {
            sample: history.last()?,
            thresholds,
            trend: Trend::of(newest.iter().chain(&burn_rates)),
            burn_rates,
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
        i64::from(WHOLE_BP) - self.remaining_bp()
    }

    /// The share of capacity left, in hundredths of a percent, rounded down; negative in debt.
    pub fn remaining_bp(&self) -> i64 {
        let capacity = i128::from(self.sample.limit().capacity().max(1));
        let left = i128::from(self.sample.level()) * i128::from(WHOLE_BP);
        consumption::saturated(left.div_euclid(capacity))
    }

    /// Consumption over each window that has samples, the shortest first.
    pub fn burn_rates(&self) -> &[BurnRate] {
        &self.burn_rates
    }

    /// How long until a severity holds; nothing for NORMAL, and for what will not be.
    pub fn to(&self, severity: Severity) -> Option<Forecast> {
        let tokens = self.thresholds.tokens(severity, self.sample.limit())?;
        Forecast::on(tokens, self.sample, self.trend.as_ref())
    }

    /// How long until WARNING.
    pub fn time_to_warning(&self) -> Option<Forecast> {
        self.to(Severity::Warning)
    }

    /// How long until CRITICAL.
    pub fn time_to_critical(&self) -> Option<Forecast> {
        self.to(Severity::Critical)
    }

    /// How long until the bucket is empty.
    pub fn time_to_empty(&self) -> Option<Forecast> {
        self.to(Severity::Exhausted)
    }

    /// How long until the bucket is full if nobody touches it; nothing when it never refills.
    pub fn time_to_full(&self) -> Option<TimeToFull> {
        TimeToFull::of(self.sample)
    }

    /// How long until the bucket is full at the present rate; nothing when it never will be.
    pub fn time_to_full_at_rate_us(&self) -> Option<u64> {
        forecast::time_to_full_at_rate_us(self.sample, self.trend.as_ref())
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
