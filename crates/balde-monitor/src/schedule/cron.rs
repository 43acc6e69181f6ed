//! Cron lines of five fields, in UTC.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::schedule::field::{Field, Values};

/// The longest cron line, in bytes.
const LINE_MAX: usize = 512;

/// The days in which any line that ever fires does so: a 29 February on a given day of the week
/// comes back after at most 40 years.
const DAYS_MAX: u32 = 41 * 366;

/// When something happens again and again, in UTC.
///
/// Five fields: minute, hour, day of month, month, day of week. Each is a star, a value, a range,
/// a list of those, with steps; months and days of the week have names. When both days are
/// restricted, either will do; a field that begins with a star restricts nothing by itself, so
/// `*/2` and another day must both hold. That is how cron has always read it.
///
/// ```
/// use balde_monitor::schedule::Cron;
///
/// let cron: Cron = "*/5 * * * *".parse()?;
/// assert_eq!(cron.next_after_us(0), Some(300_000_000));
///
/// let error = "*/5 * * 13 *".parse::<Cron>().unwrap_err();
/// assert_eq!(error.to_string(), "month: `13` is not 1 to 12 or JAN to DEC");
/// # Ok::<(), balde_monitor::schedule::CronError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minute: Values,
    hour: Values,
    day: Values,
    month: Values,
    weekday: Values,
}

impl Cron {
    /// The first moment after `us` (microseconds since 1970) at which it fires; nothing beyond the
    /// year 9999.
    pub fn next_after_us(&self, us: u64) -> Option<u64> {
        let after = Timestamp::from_microsecond(i64::try_from(us).ok()?).ok()?;
        let next = self.next_after(after)?;
        u64::try_from(next.as_microsecond()).ok()
    }

    /// [`next_after_us`](Cron::next_after_us) with jiff's type.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let now = after.to_zoned(TimeZone::UTC).datetime();
        let mut date = now.date();
        let (hour, minute) = (now.hour().cast_unsigned(), now.minute().cast_unsigned());
        // Later on the same day, else the first minute of the first day after it.
        if self.is_on(date)
            && let Some((hour, minute)) = self.later_that_day(hour, minute)
        {
            return moment(date, hour, minute);
        }
        let hour = self.hour.from(0).next()?;
        let minute = self.minute.from(0).next()?;
        for _ in 0..DAYS_MAX {
            date = date.checked_add(1.day()).ok()?;
            if self.is_on(date) {
                return moment(date, hour, minute);
            }
        }
        None
    }

    fn is_on(&self, date: Date) -> bool {
        let day = self.day.has(date.day().cast_unsigned());
        let weekday = date.weekday().to_sunday_zero_offset().cast_unsigned();
        let weekday = self.weekday.has(weekday);
        let is_day = if self.day.is_open || self.weekday.is_open {
            day && weekday
        } else {
            day || weekday
        };
        is_day && self.month.has(date.month().cast_unsigned())
    }

    /// The first hour and minute after these, on a day on which it fires.
    fn later_that_day(&self, hour: u8, minute: u8) -> Option<(u8, u8)> {
        if self.hour.has(hour)
            && let Some(minute) = self.minute.from(minute + 1).next()
        {
            return Some((hour, minute));
        }
        let hour = self.hour.from(hour + 1).next()?;
        Some((hour, self.minute.from(0).next()?))
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        if text.len() > LINE_MAX {
            return Err(CronError::TooLong { len: text.len() });
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let Ok(words) = <[&str; 5]>::try_from(words.as_slice()) else {
            return Err(CronError::Fields {
                fields: words.len(),
            });
        };
        let mut values = [None; 5];
        for ((slot, field), word) in values.iter_mut().zip(Field::ALL).zip(words) {
            let read = Values::read(field, word);
            *slot = Some(read.map_err(|reason| CronError::Field { field, reason })?);
        }
        let [
            Some(minute),
            Some(hour),
            Some(day),
            Some(month),
            Some(weekday),
        ] = values
        else {
            return Err(CronError::Fields { fields: 0 });
        };
        let cron = Self {
            text: words.join(" "),
            minute,
            hour,
            day,
            month,
            weekday,
        };
        // Any 41 years will do to see whether there is such a day at all.
        if cron.next_after_us(0).is_none() {
            return Err(CronError::Never);
        }
        Ok(cron)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a line is no cron line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CronError {
    /// It has more bytes than anybody needs.
    TooLong {
        /// How many.
        len: usize,
    },
    /// It has not five fields.
    Fields {
        /// How many it has.
        fields: usize,
    },
    /// A field cannot be read.
    Field {
        /// Which.
        field: Field,
        /// Why not.
        reason: String,
    },
    /// There is no such day, as 30 February.
    Never,
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len } => write!(f, "{len} bytes; {LINE_MAX} is the most"),
            Self::Fields { fields } => write!(
                f,
                "{fields} fields; a line has five: minute, hour, day of month, month, day of week"
            ),
            Self::Field { field, reason } => write!(f, "{field}: {reason}"),
            Self::Never => {
                f.write_str("day of month: no such month has that day, so it never fires")
            }
        }
    }
}

impl std::error::Error for CronError {}

fn moment(date: Date, hour: u8, minute: u8) -> Option<Timestamp> {
    let at = date.at(hour.cast_signed(), minute.cast_signed(), 0, 0);
    let zoned = TimeZone::UTC.to_zoned(at).ok()?;
    Some(zoned.timestamp())
}
