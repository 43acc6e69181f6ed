//! The present rate, from all windows that agree on it.

use std::cmp::Ordering;

use crate::analyse::burn_rate::BurnRate;
use crate::sample::ReportedLimit;

/// Tokens in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    tokens: i64,
    span_us: u64,
}

impl Rate {
    /// How long until `distance` tokens are gone from a bucket that is used at this rate and
    /// refills meanwhile; nothing when they never are.
    pub(crate) fn falls_us(self, distance: i128, limit: ReportedLimit) -> Option<u64> {
        self.time_us(distance, self.net(limit), limit)
    }

    /// How long until `distance` tokens have come back in spite of this rate; nothing when they
    /// never do.
    pub(crate) fn rises_us(self, distance: i128, limit: ReportedLimit) -> Option<u64> {
        self.time_us(distance, -self.net(limit), limit)
    }

    /// Consumption less refill, in tokens × period over the span.
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

/// How fast a bucket is used now, as bounds and a best guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trend {
    pub(crate) at_least: Rate,
    pub(crate) expected: Rate,
    pub(crate) at_most: Rate,
    pub(crate) samples: usize,
}

impl Trend {
    /// From burn_rates, the shortest window first.
    ///
    /// A short window is the more present one, but one refill seen in it or not makes much of its
    /// answer. A long one knows the rate well, if the rate was the same all along. So each longer
    /// window is believed as long as its bounds meet those of all shorter ones, and the first that
    /// does not meet them shows when the rate changed.
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
