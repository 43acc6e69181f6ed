//! Rates, and the burst that belongs to each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use balde::{Limit, Share};

/// The most tokens that a rate can add in its period.
pub(crate) const RATE_MAX: u64 = 1_000_000_000;

/// Tokens per second, minute or hour. A bare number converts to tokens per second. A throttler accepts
/// 1 to 1,000,000,000 tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    tokens: u64,
    period_s: u32,
}

impl Rate {
    /// `tokens` per second.
    pub const fn per_second(tokens: u64) -> Self {
        Self {
            tokens,
            period_s: 1,
        }
    }

    /// `tokens` per minute.
    pub const fn per_minute(tokens: u64) -> Self {
        Self {
            tokens,
            period_s: 60,
        }
    }

    /// `tokens` per hour.
    pub const fn per_hour(tokens: u64) -> Self {
        Self {
            tokens,
            period_s: 3_600,
        }
    }

    /// The tokens that are added in one period.
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The period: a second, a minute or an hour.
    pub const fn period(&self) -> Duration {
        Duration::from_secs(self.period_s as u64)
    }

    pub(crate) const fn is_valid(&self) -> bool {
        1 <= self.tokens && self.tokens <= RATE_MAX
    }

    /// The same period with other tokens.
    pub(crate) const fn with_tokens(self, tokens: u64) -> Self {
        Self { tokens, ..self }
    }
}

impl From<u64> for Rate {
    fn from(tokens: u64) -> Self {
        Self::per_second(tokens)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period_s {
            1 => "s",
            60 => "min",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.tokens)
    }
}

/// As it is displayed: `2000/s`, `600/min` or `40/h`.
impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (tokens, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let tokens = tokens.trim().replace('_', "").parse();
        let tokens = tokens.map_err(|_| InvalidRate)?;
        let rate = match unit.trim() {
            "s" => Self::per_second(tokens),
            "min" => Self::per_minute(tokens),
            "h" => Self::per_hour(tokens),
            _ => return Err(InvalidRate),
        };
        if rate.is_valid() {
            Ok(rate)
        } else {
            Err(InvalidRate)
        }
    }
}

/// The text of a [`Rate`] cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRate;

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write a rate as 2000/s, 600/min or 40/h, with 1 to {RATE_MAX} tokens"
        )
    }
}

impl std::error::Error for InvalidRate {}

/// A rate and its burst, as one value: the burst is always a share of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    rate: Rate,
    limit: Limit,
}

impl Pace {
    /// `rate` with a burst that is `share` of the tokens of one second: rounded down, at least one.
    pub(crate) fn new(rate: Rate, share: Share) -> Self {
        let burst = share
            .of_tokens(rate.tokens)
            .div_euclid(u64::from(rate.period_s))
            .max(1);
        let limit = Limit::bucket_of(burst, rate.tokens, rate.period())
            .and_then(Limit::starting_empty)
            .expect("every valid rate with a burst below it can be counted exactly");
        Self { rate, limit }
    }

    /// The rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The burst: the most tokens that can be taken at once.
    pub const fn burst(&self) -> u64 {
        self.limit.capacity()
    }

    /// The limit of a bucket with this rate and burst. Its buckets start empty.
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} burst {}", self.rate, self.burst())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_a_tenth_rounded_down_and_at_least_one() {
        let tenth = Share::percent(10);
        for (tokens, burst) in [
            (2_000, 200),
            (1_800, 180),
            (1_458, 145),
            (19, 1),
            (9, 1),
            (1, 1),
        ] {
            let pace = Pace::new(Rate::per_second(tokens), tenth);
            assert_eq!(pace.burst(), burst, "{tokens}");
            assert_eq!(pace.limit().refill_tokens(), tokens);
        }
        // A share of the tokens of one second, whatever the period.
        assert_eq!(Pace::new(Rate::per_minute(1_200), tenth).burst(), 2);
    }

    #[test]
    fn a_rate_is_read_as_it_is_displayed() {
        for rate in [
            Rate::per_second(2_000),
            Rate::per_minute(600),
            Rate::per_hour(1),
        ] {
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        assert_eq!("1_000 / s".parse(), Ok(Rate::per_second(1_000)));
        for text in [
            "",
            "10",
            "10/day",
            "-1/s",
            "0/s",
            "1.5/s",
            "9999999999/s",
            "1/s burst 2",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
    }

    #[test]
    fn every_valid_rate_can_be_kept() {
        for tokens in [1, 7, 999_999_937, RATE_MAX] {
            for rate in [Rate::per_second, Rate::per_minute, Rate::per_hour] {
                for share in [Share::percent(1), Share::percent(100)] {
                    assert!(rate(tokens).is_valid());
                    let pace = Pace::new(rate(tokens), share);
                    assert!(pace.burst() >= 1, "{pace}");
                }
            }
        }
    }
}
