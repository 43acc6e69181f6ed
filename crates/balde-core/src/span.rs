//! How many tokens a limit grants within an interval.

use crate::{Limit, Strategy};

impl Limit {
    /// The most whole tokens that an initially full bucket grants within `span_us`: its capacity
    /// and the refill. The interval is assumed to begin with a refill period.
    ///
    /// ```
    /// use balde_core::Limit;
    ///
    /// const DAY_US: u64 = 86_400_000_000;
    /// let limit: Limit = "25000/min burst 50000".parse()?;
    /// assert_eq!(limit.granted_within_us(DAY_US), 36_050_000);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn granted_within_us(&self, span_us: u64) -> u64 {
        let span = u128::from(span_us);
        let periods = span / u128::from(self.period_us());
        let refilled = match self.strategy() {
            Strategy::Continuous => {
                span * u128::from(self.refill_units()) / u128::from(self.token_units())
            }
            // A window that ends is followed by a whole new one.
            Strategy::Stepwise | Strategy::FixedWindow => {
                periods * u128::from(self.refill_tokens())
            }
        };
        let granted = u128::from(self.capacity()) + refilled;
        u64::try_from(granted).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_the_published_categories() {
        const DAY_US: u64 = 86_400_000_000;
        for (text, tokens) in [
            ("25000/min burst 50000", 36_050_000),
            ("2/min burst 50", 2_930),
            ("2/min burst 50 stepwise", 2_930),
            ("40/day burst 200", 240),
            ("1/7 days burst 3", 3),
            ("1/7 s burst 3", 12_345),
            ("100/h window", 2_500),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit.granted_within_us(DAY_US), tokens, "{text}");
        }
    }
}
