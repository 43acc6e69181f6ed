//! The numbers of a limit, checked so that all arithmetic on them is exact.

use core::fmt;
use core::time::Duration;

/// The default of a limit's largest debt, in tokens. Less if the exact range has no room for it.
pub const DEBT_DEFAULT: u64 = 1_000_000;

/// The largest deficit of any bucket, in units. Sums of two such numbers stay below 2^53, where the
/// doubles of a Redis script are still whole numbers.
pub const EXACT_MAX: u64 = 1 << 52;

/// The longest refill period or window: 2^52 µs, about 142 years.
pub const PERIOD_MAX_US: u64 = 1 << 52;

/// The most units that one microsecond may refill. It bounds how fast a 64-bit count of units wraps.
pub const REFILL_UNITS_MAX: u64 = 1 << 32;

/// The most bits that the length and the count of a fixed window may need together, so that both fit
/// one 64-bit word.
const WINDOW_BITS_MAX: u32 = 60;

/// How tokens are refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// A token bucket that refills with every microsecond.
    Continuous,
    /// A token bucket that refills all at once at each multiple of the period.
    Stepwise,
    /// A counter of the tokens used in a window. A key's window opens with its first token.
    FixedWindow,
}

/// The level of a bucket when it is first used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// The capacity.
    #[default]
    Full,
    /// Zero: the bucket starts to refill when it is first used.
    Empty,
}

/// A rate limit: capacity, refill, period and strategy.
///
/// Constructors refuse numbers that cannot be counted exactly. A bucket counts in units, which are
/// fractions of a token: one token is [`token_units`](Limit::token_units), and one microsecond
/// refills [`refill_units`](Limit::refill_units). Their ratio is the period in microseconds over
/// the tokens refilled in it, reduced to lowest terms, so every refill is a whole number of units
/// and nothing is rounded.
///
/// ```
/// use balde_core::Limit;
/// use core::time::Duration;
///
/// let limit = Limit::per_minute(1_200)?.with_capacity(36_000)?.stepwise();
/// assert_eq!(limit, "1200/min burst 36000 stepwise".parse()?);
///
/// // Numbers that cannot be counted exactly are refused.
/// assert!(Limit::bucket(1, Duration::from_secs(86_400))?.with_capacity(u64::MAX).is_err());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    capacity: u64,
    debt_max: u64,
    period_us: u64,
    token_units: u64,
    refill_units: u64,
    strategy: Strategy,
    start: Start,
}

impl Limit {
    /// Creates a token bucket that refills `tokens` every `period`, with the same capacity; see
    /// [`with_capacity`](Limit::with_capacity) for a larger burst.
    pub fn bucket(tokens: u64, period: Duration) -> Result<Self, LimitError> {
        Self::make(Strategy::Continuous, tokens, micros(period)?, tokens, None)
    }

    /// [`bucket`](Limit::bucket) with room for `capacity` tokens from the start: for rates so fine
    /// that a bucket of a whole period's refill could not be counted exactly.
    pub fn bucket_of(capacity: u64, tokens: u64, period: Duration) -> Result<Self, LimitError> {
        Self::make(
            Strategy::Continuous,
            tokens,
            micros(period)?,
            capacity,
            None,
        )
    }

    /// Creates a fixed window: at most `tokens` in each `window`, which opens with a key's first token.
    pub fn window(tokens: u64, window: Duration) -> Result<Self, LimitError> {
        Self::make(Strategy::FixedWindow, tokens, micros(window)?, tokens, None)
    }

    /// [`bucket`](Limit::bucket) with a period of one second.
    pub fn per_second(tokens: u64) -> Result<Self, LimitError> {
        Self::bucket(tokens, Duration::from_secs(1))
    }

    /// [`bucket`](Limit::bucket) with a period of one minute.
    pub fn per_minute(tokens: u64) -> Result<Self, LimitError> {
        Self::bucket(tokens, Duration::from_secs(60))
    }

    /// [`bucket`](Limit::bucket) with a period of one hour.
    pub fn per_hour(tokens: u64) -> Result<Self, LimitError> {
        Self::bucket(tokens, Duration::from_secs(3_600))
    }

    /// Returns this limit with another capacity. For a fixed window this is the number of tokens per
    /// window.
    pub fn with_capacity(self, capacity: u64) -> Result<Self, LimitError> {
        // A debt that equals the default is recomputed for the new capacity; any other is kept.
        let debt = (self.debt_max != self.debt_default()).then_some(self.debt_max);
        let limit = Self::make(
            self.strategy,
            self.refill_tokens(),
            self.period_us,
            capacity,
            debt,
        )?;
        Ok(Self {
            start: self.start,
            ..limit
        })
    }

    /// Returns this limit with another largest debt: how far below zero a
    /// [`Charge`](crate::Command::Charge) may take a bucket.
    pub fn with_debt_max(self, debt_max: u64) -> Result<Self, LimitError> {
        let limit = Self { debt_max, ..self };
        limit.check_room()?;
        Ok(limit)
    }

    /// Returns this limit with stepwise refill: all tokens of a period at each multiple of the
    /// period. A fixed window is returned unchanged.
    pub fn stepwise(self) -> Self {
        match self.strategy {
            Strategy::FixedWindow => self,
            _ => Self {
                strategy: Strategy::Stepwise,
                ..self
            },
        }
    }

    /// Returns this limit with buckets that are empty when they are first used. Fails for a fixed
    /// window, which would refuse for its whole length.
    pub fn starting_empty(self) -> Result<Self, LimitError> {
        if self.strategy == Strategy::FixedWindow {
            return Err(LimitError::WindowStartsEmpty);
        }
        Ok(Self {
            start: Start::Empty,
            ..self
        })
    }

    pub(crate) fn make(
        strategy: Strategy,
        tokens: u64,
        period_us: u64,
        capacity: u64,
        debt_max: Option<u64>,
    ) -> Result<Self, LimitError> {
        if tokens == 0 || capacity == 0 {
            return Err(LimitError::NoTokens);
        }
        if period_us == 0 {
            return Err(LimitError::PeriodTooShort);
        }
        if period_us > PERIOD_MAX_US {
            return Err(LimitError::PeriodTooLong { period_us });
        }
        let common = gcd(period_us, tokens);
        let (token_units, refill_units) = match strategy {
            Strategy::FixedWindow => (1, 0),
            _ => (period_us / common, tokens / common),
        };
        if refill_units > REFILL_UNITS_MAX {
            return Err(LimitError::RateTooFine {
                tokens,
                period_us,
                refill_units,
            });
        }
        let bare = Self {
            capacity,
            debt_max: 0,
            period_us,
            token_units,
            refill_units,
            strategy,
            start: Start::Full,
        };
        bare.check_room()?;
        let debt_max = debt_max.unwrap_or_else(|| bare.debt_default());
        bare.with_debt_max(debt_max)
    }

    /// The default of the largest debt: [`DEBT_DEFAULT`], or what the exact range has room for.
    pub(crate) fn debt_default(&self) -> u64 {
        DEBT_DEFAULT.min(self.holdings_max().saturating_sub(self.capacity))
    }

    /// The most that capacity and debt may be together, in tokens.
    fn holdings_max(&self) -> u64 {
        match self.strategy {
            Strategy::FixedWindow => {
                let window_bits = 64 - self.period_us.leading_zeros();
                (1 << WINDOW_BITS_MAX.saturating_sub(window_bits).min(52)) - 1
            }
            _ => EXACT_MAX / self.token_units,
        }
    }

    fn check_room(&self) -> Result<(), LimitError> {
        let holdings = self.capacity.saturating_add(self.debt_max);
        let holdings_max = self.holdings_max();
        if holdings > holdings_max {
            return Err(LimitError::TooLarge {
                capacity: self.capacity,
                debt_max: self.debt_max,
                holdings_max,
            });
        }
        Ok(())
    }

    /// The most tokens that a bucket holds, or a window grants.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How far below zero a charge may take a bucket, in tokens.
    pub const fn debt_max(&self) -> u64 {
        self.debt_max
    }

    /// The refill period or the window, in microseconds.
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The tokens that are refilled in one period. For a fixed window, all of them.
    pub const fn refill_tokens(&self) -> u64 {
        match self.strategy {
            Strategy::FixedWindow => self.capacity,
            // period / token_units is whole (the fraction was reduced from the period), so this
            // undoes the reduction exactly.
            _ => self.period_us / self.token_units * self.refill_units,
        }
    }

    /// How tokens are refilled.
    pub const fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The level of a bucket when it is first used.
    pub const fn start(&self) -> Start {
        self.start
    }

    /// Units in one token. One, for a fixed window.
    pub const fn token_units(&self) -> u64 {
        self.token_units
    }

    /// Units refilled in one microsecond. Zero, for a fixed window.
    pub const fn refill_units(&self) -> u64 {
        self.refill_units
    }

    /// The capacity in units: [`capacity`](Limit::capacity) × [`token_units`](Limit::token_units).
    pub const fn capacity_units(&self) -> u64 {
        self.capacity * self.token_units
    }

    /// The largest deficit of a bucket, in units: the capacity plus the largest debt.
    pub const fn owed_max(&self) -> u64 {
        (self.capacity + self.debt_max) * self.token_units
    }

    /// The limit as plain words, for the memory store; [`from_words`](Limit::from_words) is the
    /// inverse.
    #[doc(hidden)]
    pub const fn to_words(self) -> [u64; 6] {
        let strategy = match self.strategy {
            Strategy::Continuous => 0,
            Strategy::Stepwise => 1,
            Strategy::FixedWindow => 2,
        };
        let start = match self.start {
            Start::Full => 0,
            Start::Empty => 4,
        };
        [
            self.capacity,
            self.debt_max,
            self.period_us,
            self.token_units,
            self.refill_units,
            strategy | start,
        ]
    }

    /// The limit that [`to_words`](Limit::to_words) was called on. The words are not checked,
    /// because this runs with every decision: any other words make a limit whose decisions are
    /// wrong.
    #[doc(hidden)]
    #[inline]
    pub const fn from_words(words: [u64; 6]) -> Self {
        let [
            capacity,
            debt_max,
            period_us,
            token_units,
            refill_units,
            tags,
        ] = words;
        Self {
            capacity,
            debt_max,
            period_us,
            token_units,
            refill_units,
            strategy: match tags & 3 {
                0 => Strategy::Continuous,
                1 => Strategy::Stepwise,
                _ => Strategy::FixedWindow,
            },
            start: if tags & 4 == 0 {
                Start::Full
            } else {
                Start::Empty
            },
        }
    }

    /// The time of the last refill at or before `now_us`: the last multiple of the period for a
    /// stepwise limit, and `now_us` itself for the other strategies.
    #[inline]
    pub const fn tick(&self, now_us: u64) -> u64 {
        match self.strategy() {
            Strategy::Stepwise => now_us - now_us % self.period_us(),
            _ => now_us,
        }
    }

    /// How long an empty bucket takes to be full, in microseconds, from a period's boundary where
    /// the refill is stepwise.
    pub const fn fill_us(&self) -> u64 {
        match self.strategy {
            Strategy::Continuous => self.capacity_units().div_ceil(self.refill_units),
            Strategy::Stepwise => self.capacity.div_ceil(self.refill_tokens()) * self.period_us,
            Strategy::FixedWindow => self.period_us,
        }
    }

    /// The most tokens that a bucket refills in some time, rounded up.
    ///
    /// ```
    /// use balde_core::Limit;
    ///
    /// let limit: Limit = "2/s".parse()?;
    /// assert_eq!(limit.refilled_at_most(1_600_000), 4);
    /// assert_eq!(limit.stepwise().refilled_at_most(1), 2);
    /// // A century of a fast limit, whose units do not fit 64 bits.
    /// let fast: Limit = "1000000007/s".parse()?;
    /// assert_eq!(fast.refilled_at_most(3_155_760_000_000_000), 3_155_760_022_090_320_000);
    /// # Ok::<(), balde_core::ParseLimitError>(())
    /// ```
    pub fn refilled_at_most(&self, us: u64) -> u64 {
        match self.strategy {
            Strategy::Continuous => {
                let units = u128::from(us) * u128::from(self.refill_units);
                u64::try_from(units.div_ceil(self.token_units.into())).unwrap_or(u64::MAX)
            }
            _ => us
                .div_ceil(self.period_us)
                .saturating_mul(self.refill_tokens()),
        }
    }

    /// The time in which one token is refilled, in microseconds, rounded up. Where the refill is stepwise,
    /// the average.
    pub const fn token_us(&self) -> u64 {
        self.period_us.div_ceil(self.refill_tokens())
    }
}

/// Why numbers do not make a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// No tokens or no capacity: such a limit would refuse every request.
    NoTokens,
    /// The period is shorter than a microsecond.
    PeriodTooShort,
    /// The period is not a whole number of microseconds.
    PeriodTooFine,
    /// The period is longer than [`PERIOD_MAX_US`].
    PeriodTooLong {
        /// The period that was given, or `u64::MAX` if it is longer than that.
        period_us: u64,
    },
    /// The reduced rate needs more units per microsecond than [`REFILL_UNITS_MAX`].
    RateTooFine {
        /// The refill that was given.
        tokens: u64,
        /// The period that was given.
        period_us: u64,
        /// The units per microsecond that the rate would need.
        refill_units: u64,
    },
    /// Capacity and debt together do not fit the exact range at this rate.
    TooLarge {
        /// The capacity that was given.
        capacity: u64,
        /// The largest debt that was given.
        debt_max: u64,
        /// The most that capacity and debt may be together at this rate.
        holdings_max: u64,
    },
    /// A fixed window cannot start empty.
    WindowStartsEmpty,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoTokens => {
                f.write_str("a limit needs a refill and a capacity of at least one token")
            }
            Self::PeriodTooShort => f.write_str("the period must be at least one microsecond"),
            Self::PeriodTooFine => f.write_str("the period must be a whole number of microseconds"),
            // Too long even for the number: what it stands for is not known here.
            Self::PeriodTooLong {
                period_us: u64::MAX,
            } => write!(
                f,
                "the period is longer than {PERIOD_MAX_US} µs (about 142 years)"
            ),
            Self::PeriodTooLong { period_us } => write!(
                f,
                "a period of {period_us} µs is longer than {PERIOD_MAX_US} µs (about 142 years)"
            ),
            Self::RateTooFine {
                tokens,
                period_us,
                refill_units,
            } => write!(
                f,
                "{tokens} tokens in {period_us} µs reduce to {refill_units} units per microsecond, \
                 and more than {REFILL_UNITS_MAX} cannot be counted exactly; \
                 choose a rate with fewer digits"
            ),
            Self::TooLarge {
                capacity,
                debt_max,
                holdings_max,
            } => write!(
                f,
                "capacity {capacity} and debt {debt_max} together exceed {holdings_max} tokens, \
                 the most that can be counted exactly at this rate; lower one of them, or choose a \
                 rate with fewer digits"
            ),
            Self::WindowStartsEmpty => f.write_str(
                "a fixed window cannot start empty: it would refuse for its whole length",
            ),
        }
    }
}

impl core::error::Error for LimitError {}

fn micros(period: Duration) -> Result<u64, LimitError> {
    if !period.subsec_nanos().is_multiple_of(1_000) {
        return Err(LimitError::PeriodTooFine);
    }
    u64::try_from(period.as_micros()).map_err(|_| LimitError::PeriodTooLong {
        period_us: u64::MAX,
    })
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_as_a_reduced_fraction() {
        let limit = Limit::per_minute(1_200).unwrap();
        assert_eq!((limit.token_units(), limit.refill_units()), (50_000, 1));
        assert_eq!(limit.refill_tokens(), 1_200);

        let awkward = Limit::per_second(1_000_003).unwrap();
        assert_eq!(awkward.token_units(), 1_000_000);
        assert_eq!(awkward.refill_units(), 1_000_003);
        assert_eq!(awkward.refill_tokens(), 1_000_003);

        let fast = Limit::per_second(600_000_000).unwrap();
        assert_eq!((fast.token_units(), fast.refill_units()), (1, 600));
    }

    #[test]
    fn what_cannot_be_exact_is_refused_by_name() {
        assert_eq!(Limit::per_second(0), Err(LimitError::NoTokens));
        assert_eq!(
            Limit::bucket(1, Duration::ZERO),
            Err(LimitError::PeriodTooShort)
        );
        assert_eq!(
            Limit::bucket(1, Duration::from_nanos(1_500)),
            Err(LimitError::PeriodTooFine)
        );
        assert!(matches!(
            Limit::bucket(1, Duration::from_secs(200 * 366 * 86_400)),
            Err(LimitError::PeriodTooLong { .. })
        ));
        assert!(matches!(
            Limit::per_second(u64::MAX),
            Err(LimitError::RateTooFine { .. })
        ));
        let seldom = Limit::bucket(1, Duration::from_secs(97 * 86_400)).unwrap();
        assert!(matches!(
            seldom.with_capacity(1_000_000),
            Err(LimitError::TooLarge {
                holdings_max: 537,
                ..
            })
        ));
        assert_eq!(
            Limit::window(5, Duration::from_secs(1))
                .unwrap()
                .starting_empty(),
            Err(LimitError::WindowStartsEmpty)
        );
    }

    #[test]
    fn the_default_debt_is_what_there_is_room_for() {
        assert_eq!(Limit::per_second(10).unwrap().debt_max(), DEBT_DEFAULT);
        let seldom = Limit::bucket(1, Duration::from_secs(97 * 86_400)).unwrap();
        assert_eq!(seldom.debt_max(), 536);
        // Widening the bucket keeps a debt that was named, and recomputes one that was not.
        assert_eq!(seldom.with_capacity(500).unwrap().debt_max(), 37);
        let named = Limit::per_second(10).unwrap().with_debt_max(7).unwrap();
        assert_eq!(named.with_capacity(99).unwrap().debt_max(), 7);
    }

    #[test]
    fn an_empty_bucket_of_36000_fills_in_thirty_minutes() {
        let limit = Limit::per_minute(1_200)
            .unwrap()
            .with_capacity(36_000)
            .unwrap();
        assert_eq!(limit.fill_us(), 30 * 60 * 1_000_000);
        assert_eq!(limit.stepwise().fill_us(), 30 * 60 * 1_000_000);
    }
}
