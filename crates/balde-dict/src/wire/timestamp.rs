//! Timestamps as DICT writes them: RFC 3339 in UTC with milliseconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const MS_PER_DAY: u64 = 86_400_000;

/// The latest timestamp: the end of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

/// A point in time, in milliseconds since the Unix epoch.
///
/// ```
/// use balde_dict::wire::Timestamp;
///
/// let timestamp: Timestamp = "2022-09-02T10:19:25.833-03:00".parse()?;
/// assert_eq!(timestamp.to_string(), "2022-09-02T13:19:25.833Z");
/// # Ok::<(), balde_dict::wire::TimestampError>(())
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A timestamp that is known when the program is written.
    pub const fn known_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Creates a timestamp from milliseconds since the Unix epoch.
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    /// Creates a timestamp from microseconds since the Unix epoch, rounded down.
    pub fn from_us(us: u64) -> Self {
        Self::from_ms(us / 1_000)
    }

    /// Milliseconds since the Unix epoch.
    pub fn ms(self) -> u64 {
        self.0
    }

    /// The timestamp `ms` milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// The timestamp `ms` milliseconds earlier, but not before the Unix epoch.
    pub fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// The 24 characters of its text. Written by hand because `format!` would cost more than the rest
    /// of a response's head.
    pub fn to_text(self) -> [u8; 24] {
        let (year, month, day) = civil(self.0 / MS_PER_DAY);
        let ms = self.0 % MS_PER_DAY;
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, digits: usize, mut value: u64| {
            for index in (at..at + digits).rev() {
                text[index] = b'0' + u8::try_from(value % 10).unwrap_or(0);
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

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let timestamp: jiff::Timestamp = text.parse().map_err(|_| TimestampError)?;
        let ms = u64::try_from(timestamp.as_millisecond()).map_err(|_| TimestampError)?;
        Ok(Self::from_ms(ms))
    }
}

/// The text is not a timestamp, or is one before the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a timestamp such as 2020-01-10T10:00:00.000Z")]
pub struct TimestampError;

/// Year, month and day of a number of days since the Unix epoch, counted in eras of 400 years that
/// start in March.
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
        fn timestamps_are_written_as_the_library_writes_them(ms in 0..=MAX_MS) {
            let library = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap();
            let timestamp = Timestamp::from_ms(ms);
            prop_assert_eq!(format!("{library:.3}"), timestamp.to_string());
            prop_assert_eq!(timestamp.to_string().parse(), Ok(timestamp));
        }
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for text in [
            "",
            "2020-01-10",
            "2020-13-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "now",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(TimestampError), "{text}");
        }
    }
}
