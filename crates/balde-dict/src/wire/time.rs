//! Moments as DICT writes them: RFC 3339 in UTC with milliseconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const MS_PER_DAY: u64 = 86_400_000;

/// The last moment that is read or written: the end of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

/// A moment, in milliseconds since the beginning of 1970.
///
/// ```
/// use balde_dict::wire::Moment;
///
/// let moment: Moment = "2022-09-02T10:19:25.833-03:00".parse()?;
/// assert_eq!(moment.to_string(), "2022-09-02T13:19:25.833Z");
/// # Ok::<(), balde_dict::wire::BadMoment>(())
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// So many milliseconds after the beginning of 1970.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    /// A clock's microseconds, rounded down.
    pub fn from_us(us: u64) -> Self {
        Self::from_ms(us / 1_000)
    }

    /// Milliseconds since the beginning of 1970.
    pub fn ms(self) -> u64 {
        self.0
    }

    /// So much later.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// So much earlier, but not before 1970.
    pub fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// The 24 characters of its text. The formatting machinery would cost more than all the rest of
    /// an answer's head.
    pub fn to_text(self) -> [u8; 24] {
        let (year, month, day) = civil(self.0 / MS_PER_DAY);
        let ms = self.0 % MS_PER_DAY;
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, digits: usize, mut value: u64| {
            for place in (at..at + digits).rev() {
                text[place] = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, ms / 3_600_000);
        put(14, 2, ms / 60_000 % 60);
        put(17, 2, ms / 1_000 % 60);
        put(20, 3, ms % 1_000);
        text
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for Moment {
    type Err = BadMoment;

    fn from_str(text: &str) -> Result<Self, BadMoment> {
        let timestamp: jiff::Timestamp = text.parse().map_err(|_| BadMoment)?;
        let ms = u64::try_from(timestamp.as_millisecond()).map_err(|_| BadMoment)?;
        Ok(Self::from_ms(ms))
    }
}

/// A text that is no moment, or one before 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMoment;

impl fmt::Display for BadMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a moment; write it as 2020-01-10T10:00:00.000Z")
    }
}

impl std::error::Error for BadMoment {}

/// Year, month and day of a number of days since the beginning of 1970, by whole eras of 400 years
/// that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_moment_reads_as_the_library_writes_it(ms in 0..=MAX_MS) {
            let library = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap();
            let moment = Moment::from_ms(ms);
            prop_assert_eq!(format!("{library:.3}"), moment.to_string());
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2020-01-10",
            "2020-13-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "now",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(BadMoment), "{text}");
        }
    }
}
