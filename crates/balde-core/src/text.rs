//! Limits as text: `10/s`, `1200/min burst 36000`, `40/day`, `0.5/s`.
//!
//! Decimals become fractions digit by digit, so a limit never passes through a float.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::limit::gcd;
use crate::{Limit, LimitError, Start, Strategy};

/// The first name of each unit is the one a limit is written with.
const UNITS: [(&[&str], u64); 7] = [
    (&["week", "weeks", "w"], 604_800_000_000),
    (&["day", "days", "d"], 86_400_000_000),
    (&["h", "hour", "hours", "hr"], 3_600_000_000),
    (&["min", "minute", "minutes", "m"], 60_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000),
    (
        &["ms", "milli", "millis", "millisecond", "milliseconds"],
        1_000,
    ),
    (
        &[
            "us",
            "µs",
            "μs",
            "micro",
            "micros",
            "microsecond",
            "microseconds",
        ],
        1,
    ),
];

/// Digits accepted after the decimal point of a rate.
const FRACTION_DIGITS_MAX: usize = 9;

/// The longest text that is parsed as a limit.
const TEXT_BYTES_MAX: usize = 256;

/// Why a text cannot be parsed as a [`Limit`], and in which column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLimitError {
    column: usize,
    cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Syntax(String),
    Limit(LimitError),
}

impl ParseLimitError {
    /// The column where parsing stopped, counted in characters from one.
    pub const fn column(&self) -> usize {
        self.column
    }

    /// Why the numbers were refused, if the syntax is right.
    pub const fn limit_error(&self) -> Option<&LimitError> {
        match &self.cause {
            Cause::Limit(error) => Some(error),
            Cause::Syntax(_) => None,
        }
    }
}

impl fmt::Display for ParseLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Syntax(why) => write!(f, "column {}: {why}", self.column),
            Cause::Limit(error) => write!(f, "column {}: {error}", self.column),
        }
    }
}

impl core::error::Error for ParseLimitError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.cause {
            Cause::Limit(error) => Some(error),
            Cause::Syntax(_) => None,
        }
    }
}

/// Parses `RATE [burst N] [stepwise | continuous | window] [empty | full] [debt N]`.
///
/// A rate is `AMOUNT/PERIOD` or `AMOUNT per PERIOD`. The amount may have a decimal point and `_`
/// between digits; the period is a unit (`us`, `ms`, `s`, `min`, `h`, `day`, `week`), with a count
/// before it if needed (`1/97 days`). Without `burst` the capacity is the refill of one period, and
/// at least one token.
///
/// ```
/// use balde_core::Limit;
///
/// let limit: Limit = "0.5/s burst 3".parse()?;
/// assert_eq!((limit.refill_tokens(), limit.period_us()), (1, 2_000_000));
///
/// let error = "10/fortnight".parse::<Limit>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "column 4: unknown unit `fortnight`; use us, ms, s, min, h, day or week",
/// );
/// # Ok::<(), balde_core::ParseLimitError>(())
/// ```
impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut reader = Reader { text, at: 0 };
        if text.len() > TEXT_BYTES_MAX {
            return reader.fail(format!("a limit is at most {TEXT_BYTES_MAX} bytes long"));
        }
        let (tokens, scale) = reader.amount()?;
        reader.slash_or_per()?;
        reader.space();
        let period_at = reader.at;
        let unit_us = reader.period()?;
        // A rate of 0.5/s is 1 token in 2 s, and not 5 in 10 s: it matters to stepwise refill.
        let common = gcd(tokens, scale);
        // A period that does not fit is refused as too long below, after the words are read.
        let period_us = unit_us.saturating_mul(scale / common);
        let words = reader.words()?;
        let capacity = words.burst.unwrap_or((tokens / scale).max(1));
        let strategy = words.strategy.unwrap_or(Strategy::Continuous);
        let tokens = tokens / common;
        if strategy == Strategy::FixedWindow {
            if scale != common {
                return reader.fail("a window needs a whole number of tokens".to_owned());
            }
            if words.burst.is_some() {
                return reader.fail("a window has no burst; remove it".to_owned());
            }
        }
        let made =
            Limit::make(strategy, tokens, period_us, capacity, words.debt).and_then(|limit| {
                match words.start {
                    Some(Start::Empty) => limit.starting_empty(),
                    _ => Ok(limit),
                }
            });
        made.or_else(|error| {
            if let LimitError::PeriodTooLong { .. } | LimitError::PeriodTooShort = error {
                reader.at = period_at;
            }
            reader.refuse(error)
        })
    }
}

impl TryFrom<&str> for Limit {
    type Error = ParseLimitError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for Limit {
    type Error = ParseLimitError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<&String> for Limit {
    type Error = ParseLimitError;

    fn try_from(text: &String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Writes a text that parses to the same limit.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.refill_tokens();
        let (names, unit_us) = UNITS
            .iter()
            .find(|(_, unit_us)| self.period_us().is_multiple_of(*unit_us))
            .unwrap_or(&UNITS[UNITS.len() - 1]);
        write!(f, "{tokens}/")?;
        match self.period_us() / unit_us {
            1 => f.write_str(names[0])?,
            count => write!(f, "{count}{}", names[0])?,
        }
        if self.capacity() != tokens {
            write!(f, " burst {}", self.capacity())?;
        }
        match self.strategy() {
            Strategy::Continuous => {}
            Strategy::Stepwise => f.write_str(" stepwise")?,
            Strategy::FixedWindow => f.write_str(" window")?,
        }
        if self.start() == Start::Empty {
            f.write_str(" empty")?;
        }
        if self.debt_max() != self.debt_default() {
            write!(f, " debt {}", self.debt_max())?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Words {
    burst: Option<u64>,
    strategy: Option<Strategy>,
    start: Option<Start>,
    debt: Option<u64>,
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    /// The amount as a fraction: digits over a power of ten.
    fn amount(&mut self) -> Result<(u64, u64), ParseLimitError> {
        self.space();
        let start = self.at;
        let whole = self.digits();
        if whole.is_empty() {
            return self.fail("expected a number, as in `10/s`".to_owned());
        }
        let mut fraction = "";
        if self.rest().starts_with('.') {
            self.at += 1;
            fraction = self.digits();
            if fraction.is_empty() {
                return self.fail("expected digits after the decimal point".to_owned());
            }
        }
        self.refuse_other_notations(start, "a decimal number, such as 10, 0.5 or 1_000")?;
        let mut tokens: u64 = 0;
        let mut scale: u64 = 1;
        let mut places = 0;
        for (digits, step) in [(whole, 1), (fraction, 10)] {
            for digit in digits.bytes().filter(|b| *b != b'_') {
                places += usize::from(step == 10);
                let digit = u64::from(digit - b'0');
                let next = tokens.checked_mul(10).and_then(|t| t.checked_add(digit));
                match next {
                    Some(next) if places <= FRACTION_DIGITS_MAX => {
                        (tokens, scale) = (next, scale * step);
                    }
                    _ => {
                        self.at = start;
                        return self.fail(format!(
                            "the number has too many digits; it must stay below 2^64 without its \
                             point, with at most {FRACTION_DIGITS_MAX} digits after it"
                        ));
                    }
                }
            }
        }
        if tokens == 0 {
            self.at = start;
            return self.refuse(LimitError::NoTokens);
        }
        Ok((tokens, scale))
    }

    /// Refuses a number that goes on after its digits: `0x10`, `1e3`, `1,000`, `1.2.3`. Without this,
    /// its beginning would be read as a number of its own, and refused or taken for what it is not.
    fn refuse_other_notations(&mut self, start: usize, what: &str) -> Result<(), ParseLimitError> {
        let behind = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || c == '.' || c == ',' || c == '_';
        let end = behind.find(|c| !is_part(c)).unwrap_or(behind.len());
        let has_digits = behind[..end].contains(|c: char| c.is_ascii_digit());
        if !has_digits {
            return Ok(());
        }
        let found = self.text[start..self.at + end].escape_debug();
        let why = format!("`{found}` is not {what}");
        self.at = start;
        self.fail(why)
    }

    fn slash_or_per(&mut self) -> Result<(), ParseLimitError> {
        self.space();
        if self.rest().starts_with('/') {
            self.at += 1;
            return Ok(());
        }
        let here = self.at;
        if self.word() == "per" {
            return Ok(());
        }
        self.at = here;
        self.fail("expected `/` and a period, as in `10/s`".to_owned())
    }

    /// The period in microseconds: a unit, or a count and a unit.
    fn period(&mut self) -> Result<u64, ParseLimitError> {
        self.space();
        let here = self.at;
        let digits = self.digits();
        let count = if digits.is_empty() {
            1
        } else {
            self.at = here;
            self.number("a whole number of units")?
        };
        self.space();
        let here = self.at;
        let name = self.word();
        let Some((_, unit_us)) = UNITS.iter().find(|(names, _)| names.contains(&name)) else {
            self.at = here;
            return self.fail(if name.is_empty() {
                "expected a period: us, ms, s, min, h, day or week".to_owned()
            } else {
                let name = name.escape_debug();
                format!("unknown unit `{name}`; use us, ms, s, min, h, day or week")
            });
        };
        Ok(count.saturating_mul(*unit_us))
    }

    fn words(&mut self) -> Result<Words, ParseLimitError> {
        let mut words = Words::default();
        loop {
            self.space();
            if self.rest().is_empty() {
                return Ok(words);
            }
            let here = self.at;
            let word = self.word();
            let is_repeated = match word {
                "burst" | "capacity" => {
                    let n = self.number("a number of tokens")?;
                    words.burst.replace(n).is_some()
                }
                "debt" => {
                    let n = self.number("a number of tokens")?;
                    words.debt.replace(n).is_some()
                }
                "continuous" => words.strategy.replace(Strategy::Continuous).is_some(),
                "stepwise" => words.strategy.replace(Strategy::Stepwise).is_some(),
                "window" => words.strategy.replace(Strategy::FixedWindow).is_some(),
                "full" => words.start.replace(Start::Full).is_some(),
                "empty" => words.start.replace(Start::Empty).is_some(),
                _ => {
                    self.at = here;
                    let found = self.rest().escape_debug();
                    return self.fail(format!(
                        "did not expect `{found}`; after the rate come burst N, debt N, \
                         continuous, stepwise or window, full or empty"
                    ));
                }
            };
            if is_repeated {
                self.at = here;
                return self.fail(format!("`{word}` repeats or contradicts an earlier word"));
            }
        }
    }

    fn number(&mut self, what: &str) -> Result<u64, ParseLimitError> {
        self.space();
        let here = self.at;
        let digits = self.digits();
        self.refuse_other_notations(here, "a whole number, such as 10 or 1_000")?;
        let number = digits
            .bytes()
            .filter(|b| *b != b'_')
            .try_fold(0_u64, |n, b| {
                n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
            });
        match number {
            Some(number) if !digits.is_empty() => Ok(number),
            _ => {
                self.at = here;
                self.fail(format!("expected {what}, below 2^64"))
            }
        }
    }

    /// Digits, with single `_` between them.
    fn digits(&mut self) -> &'t str {
        let rest = self.rest();
        let mut end = 0;
        for (at, byte) in rest.bytes().enumerate() {
            match byte {
                b'0'..=b'9' => end = at + 1,
                b'_' if at > 0 && end == at => {}
                _ => break,
            }
        }
        self.at += end;
        &rest[..end]
    }

    fn word(&mut self) -> &'t str {
        self.space();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn fail<T>(&self, why: String) -> Result<T, ParseLimitError> {
        Err(self.error(Cause::Syntax(why)))
    }

    fn refuse<T>(&self, error: LimitError) -> Result<T, ParseLimitError> {
        Err(self.error(Cause::Limit(error)))
    }

    fn error(&self, cause: Cause) -> ParseLimitError {
        ParseLimitError {
            column: self.text[..self.at].chars().count() + 1,
            cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::time::Duration;

    use super::*;

    fn parse(text: &str) -> Limit {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_ways_people_write_limits() {
        assert_eq!(parse("10/s"), Limit::per_second(10).unwrap());
        assert_eq!(parse(" 10 per second "), parse("10/s"));
        assert_eq!(
            parse("1200/min burst 36000"),
            Limit::per_minute(1_200)
                .unwrap()
                .with_capacity(36_000)
                .unwrap()
        );
        assert_eq!(
            parse("1_200/min burst 36_000"),
            parse("1200/min burst 36000")
        );
        assert_eq!(
            parse("40/day"),
            Limit::bucket(40, Duration::from_secs(86_400)).unwrap()
        );
        assert_eq!(
            parse("0.5/s"),
            Limit::bucket(1, Duration::from_secs(2)).unwrap()
        );
        assert_eq!(
            parse("1.5/s burst 4"),
            Limit::bucket(3, Duration::from_secs(2))
                .unwrap()
                .with_capacity(4)
                .unwrap()
        );
        assert_eq!(
            parse("1/97 days"),
            Limit::bucket(1, Duration::from_secs(97 * 86_400)).unwrap()
        );
        assert_eq!(
            parse("100/min window"),
            Limit::window(100, Duration::from_secs(60)).unwrap()
        );
        assert_eq!(
            parse("2/min burst 100 stepwise empty debt 300"),
            Limit::per_minute(2)
                .unwrap()
                .with_capacity(100)
                .unwrap()
                .stepwise()
                .starting_empty()
                .unwrap()
                .with_debt_max(300)
                .unwrap()
        );
    }

    #[test]
    fn a_decimal_is_a_fraction_and_not_a_float() {
        let tenth = parse("0.1/s");
        assert_eq!((tenth.refill_tokens(), tenth.period_us()), (1, 10_000_000));
        let third = parse("0.333333333/s");
        assert_eq!(
            (third.refill_tokens(), third.period_us()),
            (333_333_333, 1_000_000_000_000_000)
        );
    }

    #[test]
    fn what_is_not_a_limit_says_where_and_why() {
        for (text, column, why) in [
            ("", 1, "expected a number"),
            ("ten/s", 1, "expected a number"),
            ("-1/s", 1, "expected a number"),
            ("10", 3, "expected `/`"),
            ("10/", 4, "expected a period"),
            ("10/fortnight", 4, "unknown unit `fortnight`"),
            ("10.s/s", 4, "digits after the decimal point"),
            ("10s", 3, "expected `/`"),
            ("1e3/s", 1, "`1e3` is not a decimal number"),
            ("0x10/s", 1, "`0x10` is not a decimal number"),
            ("1,000/s", 1, "`1,000` is not a decimal number"),
            ("1.5.2/s", 1, "`1.5.2` is not"),
            ("10/s burst 0x20", 12, "`0x20` is not"),
            ("10/0b11 s", 4, "`0b11` is not"),
            ("0/s", 1, "at least one token"),
            ("0.0000000001/s", 1, "too many digits"),
            ("99999999999999999999/s", 1, "too many digits"),
            ("10/s burst", 11, "expected a number of tokens"),
            ("10/s burst 1.5", 12, "`1.5` is not a whole number"),
            ("10/s burst 5 burst 6", 14, "repeats or contradicts"),
            ("10/s stepwise window", 15, "repeats or contradicts"),
            ("10/s please", 6, "did not expect `please`"),
            ("10/s, burst 5", 5, "did not expect"),
            ("1.5/s window", 13, "whole number of tokens"),
            ("10/s window burst 5", 20, "no burst"),
            ("10/s window empty", 18, "cannot start empty"),
            ("10/s burst 18446744073709551615", 32, "counted exactly"),
            ("1/0s", 3, "at least one microsecond"),
            ("1/99999999999999 weeks", 3, "the period is longer than"),
            (
                "1/18446744073709551615 days",
                3,
                "the period is longer than",
            ),
            ("1/18446744073709551616 days", 3, "below 2^64"),
            ("0.000000001/300000 days", 13, "142 years"),
        ] {
            let error = text.parse::<Limit>().unwrap_err();
            assert_eq!(error.column(), column, "{text:?}: {error}");
            assert!(error.to_string().contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_limit_is_written_as_it_is_read() {
        for text in [
            "10/s",
            "1200/min burst 36000 stepwise",
            "1/97day",
            "40/day burst 200",
            "100/min window",
            "1/2s",
            "7/3us burst 9 empty debt 5",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
    }
}
