//! The analysis of samples: utilisation, burn rates, forecasts and changes. Pure functions of their
//! arguments.

mod burn_rate;
mod by_policy;
mod change;
mod consumption;
mod forecast;
mod outlook;
mod refill;
mod settings;

pub use burn_rate::{BurnRate, LOOKBACK_SAMPLES_MAX};
pub use by_policy::SettingsByPolicy;
pub use change::{Change, Freshness, changes};
pub use consumption::{Consumption, Credits};
pub use forecast::{Confidence, Forecast, TimeToFull};
pub use settings::{AnalysisSettings, WINDOWS_MAX, WindowsError};

use crate::analyse::outlook::Outlook;
use crate::sample::Sample;
use crate::severity::{Severity, Thresholds, WHOLE_BP};

/// The analysis of one bucket as of its newest sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment<'a> {
    sample: &'a Sample,
    thresholds: Thresholds,
    /// The samples without a break before the newest one.
    run: &'a [Sample],
    settings: AnalysisSettings,
    outlook: Option<Outlook>,
}

impl<'a> Assessment<'a> {
    /// Analyses the samples of one bucket, in ascending order of time; `None` if there are no
    /// samples.
    pub fn of(
        history: &'a [Sample],
        thresholds: Thresholds,
        settings: &AnalysisSettings,
    ) -> Option<Self> {
        let run = burn_rate::unbroken(history, settings);
        Some(Self {
            sample: history.last()?,
            thresholds,
            outlook: Outlook::of(run, settings),
            run,
            settings: settings.clone(),
        })
    }

    /// The newest sample.
    pub const fn sample(&self) -> &'a Sample {
        self.sample
    }

    /// The thresholds of the severities.
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The severity of the current level, without hysteresis.
    pub fn severity(&self) -> Severity {
        self.thresholds
            .severity(self.sample.level(), self.sample.limit())
    }

    /// The share of capacity in use, in basis points; above 10,000 when in debt.
    pub fn utilisation_bp(&self) -> i64 {
        i64::from(WHOLE_BP) - self.remaining_bp()
    }

    /// The remaining share of capacity, in basis points, rounded down; negative when in debt.
    pub fn remaining_bp(&self) -> i64 {
        let capacity = i128::from(self.sample.limit().capacity().max(1));
        let left = i128::from(self.sample.level()) * i128::from(WHOLE_BP);
        consumption::saturated(left.div_euclid(capacity))
    }

    /// Computes the burn rate of each window that has enough samples, the shortest first.
    pub fn burn_rates(&self) -> Vec<BurnRate> {
        burn_rate::burn_rates(self.run, &self.settings)
    }

    /// Forecasts when a severity will be reached; `None` for NORMAL and for a severity that will not
    /// be reached.
    pub fn time_to(&self, severity: Severity) -> Option<Forecast> {
        let tokens = self.thresholds.tokens(severity, self.sample.limit())?;
        Forecast::of(tokens, self.sample, self.outlook.as_ref())
    }

    /// Forecasts when the bucket will be at WARNING.
    pub fn time_to_warning(&self) -> Option<Forecast> {
        self.time_to(Severity::Warning)
    }

    /// Forecasts when the bucket will be at CRITICAL.
    pub fn time_to_critical(&self) -> Option<Forecast> {
        self.time_to(Severity::Critical)
    }

    /// Forecasts when the bucket will be empty.
    pub fn time_to_empty(&self) -> Option<Forecast> {
        self.time_to(Severity::Exhausted)
    }

    /// The time until the bucket would be full if nothing more were consumed; `None` if it never
    /// refills.
    pub fn time_to_full(&self) -> Option<TimeToFull> {
        TimeToFull::of(self.sample)
    }

    /// The time until the bucket is full at the current rate of consumption; `None` if it never
    /// will be.
    pub fn time_to_full_at_rate_us(&self) -> Option<u64> {
        forecast::time_to_full_at_rate_us(self.sample, self.outlook.as_ref())
    }

    /// The recovery time: how long until the bucket is full again if nothing more is consumed; `None` if
    /// it never refills.
    pub fn recovery_us(&self) -> Option<u64> {
        self.sample.limit().recovery_us(self.sample.level())
    }

    /// The time an empty bucket takes to become full: (capacity / refill) × period.
    pub fn fill_us(&self) -> Option<u64> {
        self.sample.limit().recovery_us(0)
    }
}
