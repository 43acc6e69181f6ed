//! The current rate of consumption, derived from all windows that agree with each other.

use std::cmp::Ordering;

use crate::analyse::burn_rate::BurnRate;
use crate::sample::ReportedLimit;

/// A number of tokens within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    tokens: i64,
    span_us: u64,
}

impl Rate {
    /// The time until the level has fallen by `distance` tokens at this rate of consumption, refill
    /// included; `None` if it never falls that far.
    pub(crate) fn time_to_fall_us(self, distance: i128, limit: ReportedLimit) -> Option<u64> {
        self.time_us(distance, self.net(limit), limit)
    }

    /// The time until the level has risen by `distance` tokens at this rate of consumption; `None`
    /// if it never rises that far.
    pub(crate) fn time_to_rise_us(self, distance: i128, limit: ReportedLimit) -> Option<u64> {
        self.time_us(distance, -self.net(limit), limit)
    }

    /// Consumption minus refill, scaled by period × span.
    fn net(self, limit: ReportedLimit) -> i128 {
        i128::from(self.tokens) * i128::from(limit.period_us())
            - i128::from(limit.refill_tokens()) * i128::from(self.span_us)
    }

    fn time_us(self, distance: i128, net: i128, limit: ReportedLimit) -> Option<u64> {
        if net <= 0 {
            return None;
        }
        let scale = i128::from(self.span_us).saturating_mul(i128::from(limit.period_us()));
        let us = distance.saturating_mul(scale) / net;
        Some(u64::try_from(us).unwrap_or(u64::MAX))
    }

    fn compare(self, other: Self) -> Ordering {
        let left = i128::from(self.tokens) * i128::from(other.span_us);
        left.cmp(&(i128::from(other.tokens) * i128::from(self.span_us)))
    }

    fn max(self, other: Self) -> Self {
        if self.compare(other).is_lt() {
            other
        } else {
            self
        }
    }

    fn min(self, other: Self) -> Self {
        if self.compare(other).is_gt() {
            other
        } else {
            self
        }
    }
}

/// The current rate of consumption: an estimate and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trend {
    pub(crate) at_least: Rate,
    pub(crate) expected: Rate,
    pub(crate) at_most: Rate,
    pub(crate) samples: usize,
}

impl Trend {
    /// Combines burn rates, the shortest window first.
    ///
    /// A short window is more recent, but a single refill changes its result a lot. A long window
    /// is precise if the rate was constant. So each longer window is used as long as its bounds
    /// overlap those of all shorter ones; the first that does not shows that the rate changed.
    pub(crate) fn of<'a>(mut burn_rates: impl Iterator<Item = &'a BurnRate>) -> Option<Self> {
        let mut trend = Self::over(burn_rates.next()?);
        for burn in burn_rates {
            let next = Self::over(burn);
            let at_least = trend.at_least.max(next.at_least);
            let at_most = trend.at_most.min(next.at_most);
            if at_least.compare(at_most).is_gt() {
                break;
            }
            trend = Self {
                at_least,
                expected: next.expected.max(at_least).min(at_most),
                at_most,
                samples: next.samples,
            };
        }
        Some(trend)
    }

    fn over(burn: &BurnRate) -> Self {
        let rate = |tokens| Rate {
            tokens,
            span_us: burn.span_us(),
        };
        Self {
            at_least: rate(burn.at_least()),
            expected: rate(burn.expected()),
            at_most: rate(burn.at_most()),
            samples: burn.samples(),
        }
    }
}
