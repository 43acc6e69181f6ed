//! The settings of degradation and recovery.

use std::time::Duration;

use balde::Share;

use super::INTERVAL_MAX;
use crate::error::SettingsError;
use crate::micros::whole_us;

/// The most probes that can be set.
const PROBES_MAX: u32 = 1_000;

/// How errors lower a partition's rate, when its circuit opens, and how it recovers.
///
/// [`Degradation::new`] judges errors by their share of the latest requests, so that single failures
/// among many successes cost nothing and one outage lowers the rate once. [`Degradation::strict`]
/// lowers the rate for every error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are passed to a builder"]
pub struct Degradation {
    pub(crate) ratio: Share,
    pub(crate) floor: Share,
    pub(crate) step: Share,
    pub(crate) recovery: Duration,
    /// `None` if steps are as far apart as `recovery`.
    step_interval: Option<Duration>,
    pub(crate) reset: Duration,
    pub(crate) spacing: Duration,
    pub(crate) probes: u32,
    /// `None` if every error counts.
    tolerance: Option<Share>,
    window: Duration,
    /// `None` if the circuit opens only at the floor.
    open_after: Option<Duration>,
}

impl Degradation {
    /// The defaults. While at least 5 % of the requests of the last second failed, an error lowers the
    /// rate to 90 % of what it was, at most once in 5 s. The circuit opens at 10 % of the configured
    /// rate, or when 20 or more requests in a row have failed over at least 5 s; it stays open for 5 s
    /// and closes after 3 successful probes. From 6 s after the rate was last lowered, a success adds
    /// 10 % of the configured rate, once a second, while fewer than 5 % of the requests fail.
    pub const fn new() -> Self {
        Self {
            ratio: Share::percent(90),
            floor: Share::percent(10),
            step: Share::percent(10),
            recovery: Duration::from_secs(6),
            step_interval: Some(Duration::from_secs(1)),
            reset: Duration::from_secs(5),
            spacing: Duration::from_secs(5),
            probes: 3,
            tolerance: Some(Share::percent(5)),
            window: Duration::from_secs(1),
            open_after: Some(Duration::from_secs(5)),
        }
    }

    /// The strict preset. Every error leaves 90 % of the rate; the circuit opens at 10 % of the
    /// configured rate, stays open for 30 s and closes after 3 successful probes; then each 30 s
    /// without an error add 10 % of the configured rate.
    ///
    /// Choose it where one refused request is already too many. A bulk job with a small, steady share
    /// of failures almost stops under it.
    pub const fn strict() -> Self {
        Self {
            recovery: Duration::from_secs(30),
            step_interval: None,
            reset: Duration::from_secs(30),
            spacing: Duration::ZERO,
            tolerance: None,
            open_after: None,
            ..Self::new()
        }
    }

    /// Sets the share of the current rate that remains after an error: less than 100 %.
    pub const fn ratio(self, ratio: Share) -> Self {
        Self { ratio, ..self }
    }

    /// Sets the share of the configured rate at which the circuit opens.
    pub const fn floor(self, floor: Share) -> Self {
        Self { floor, ..self }
    }

    /// Sets the share of the configured rate that one step of recovery adds.
    pub const fn step(self, step: Share) -> Self {
        Self { step, ..self }
    }

    /// Sets how long after an error that lowered the rate a success adds the first step of recovery.
    /// With [`strict`](Degradation::strict), how long there must have been no error and no step.
    pub const fn recovery(self, interval: Duration) -> Self {
        Self {
            recovery: interval,
            ..self
        }
    }

    /// Sets how far apart further steps of recovery are. If `interval` is longer than
    /// [`recovery`](Degradation::recovery), or never set on the strict preset, they are as far apart as
    /// that.
    pub const fn step_interval(self, interval: Duration) -> Self {
        Self {
            step_interval: Some(interval),
            ..self
        }
    }

    /// Sets which share of the requests within [`window`](Degradation::window) may fail. An error
    /// lowers the rate only if at least this share has failed, and recovery waits while it does.
    ///
    /// Requests whose permits are open count as requests without an error. A window with few requests
    /// reaches the share with its first error: one error among 20 requests is 5 %.
    pub const fn tolerance(self, share: Share) -> Self {
        Self {
            tolerance: Some(share),
            ..self
        }
    }

    /// Sets the time over which the share of errors is counted.
    pub const fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Sets for how long requests must have failed without a single success, at least 20 of them,
    /// before the circuit opens, whatever the rate is.
    pub const fn open_after(self, interval: Duration) -> Self {
        Self {
            open_after: Some(interval),
            ..self
        }
    }

    /// Sets how long the circuit stays open before it half-opens.
    pub const fn reset(self, interval: Duration) -> Self {
        Self {
            reset: interval,
            ..self
        }
    }

    /// Sets how many probes must succeed before a half-open circuit closes, between 1 and 1,000.
    /// Until their outcomes are reported, no more than that many requests pass.
    pub const fn probes(self, probes: u32) -> Self {
        Self { probes, ..self }
    }

    /// Sets how long after an error that lowered the rate further errors do not lower it again, so
    /// that many requests that fail together lower it only once.
    pub const fn spacing(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let share = |which, share: Share, is_right: bool, advice| {
            if share.is_valid() && is_right {
                Ok(())
            } else {
                Err(SettingsError::Share { which, advice })
            }
        };
        let ratio_is_less = self.ratio.of_tokens(1 << 40) < 1 << 40;
        share(
            "ratio",
            self.ratio,
            ratio_is_less,
            "an error must leave less than 100 percent of the rate",
        )?;
        share("floor", self.floor, true, "it must be 1 to 100 percent")?;
        share("step", self.step, true, "it must be 1 to 100 percent")?;
        if let Some(tolerance) = self.tolerance {
            let advice = "it must be 1 to 100 percent";
            share("tolerance", tolerance, true, advice)?;
        }
        let intervals = [
            ("recovery", Some(self.recovery)),
            ("reset", Some(self.reset)),
            ("window", Some(self.window)),
            ("step_interval", self.step_interval),
            ("open_after", self.open_after),
        ];
        for (which, interval) in intervals {
            let Some(interval) = interval else { continue };
            if !(Duration::from_millis(1)..=INTERVAL_MAX).contains(&interval) {
                return Err(SettingsError::Interval { which, interval });
            }
        }
        if self.spacing > INTERVAL_MAX {
            return Err(SettingsError::Interval {
                which: "spacing",
                interval: self.spacing,
            });
        }
        if !(1..=PROBES_MAX).contains(&self.probes) {
            return Err(SettingsError::Number {
                which: "probes",
                number: self.probes as usize,
                max: PROBES_MAX as usize,
            });
        }
        Ok(())
    }

    pub(super) fn floor_of(&self, configured: u64) -> u64 {
        self.floor.of_tokens(configured)
    }

    pub(super) fn window_us(&self) -> u64 {
        whole_us(self.window)
    }

    /// Returns true if this many errors among this many requests lower the rate.
    pub(super) fn is_too_many(&self, errors: u64, requests: u64) -> bool {
        errors > 0
            && self.tolerance.is_none_or(|share| {
                // Scaled, so that rounding does not matter.
                const SCALE: u64 = 1_000_000;
                errors.saturating_mul(SCALE) >= share.of_tokens(requests.saturating_mul(SCALE))
            })
    }

    /// Returns true if every error counts as one, whatever its share.
    pub(super) const fn is_every_error(&self) -> bool {
        self.tolerance.is_none()
    }

    /// By how much a step of recovery shortens the wait for the next one.
    pub(super) fn step_advance_us(&self) -> u64 {
        let step = self.step_interval.unwrap_or(self.recovery);
        whole_us(self.recovery.saturating_sub(step))
    }

    pub(super) fn open_after_us(&self) -> Option<u64> {
        self.open_after.map(whole_us)
    }
}

impl Default for Degradation {
    fn default() -> Self {
        Self::new()
    }
}
