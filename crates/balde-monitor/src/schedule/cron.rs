//! Cron expressions of five fields, evaluated in UTC.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::schedule::cron_field::{CronField, FieldValues};

/// The longest cron expression, in bytes.
const EXPRESSION_BYTES_MAX: usize = 512;

/// The days within which every satisfiable expression fires: 29 February falls on a given day of the
/// week at least every 40 years.
const SEARCH_DAYS_MAX: u32 = 41 * 366;

/// A cron expression, evaluated in UTC.
///
/// Five fields: minute, hour, day of month, month, day of week. Each is `*`, a value, a range, or a
/// list of those, with optional steps; months and days of the week have names. If both day fields
/// are restricted, a day matches if either does. As in Vixie cron, a field that begins with `*`
/// counts as unrestricted, so with `*/2` in one day field both must match.
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
    minute: FieldValues,
    hour: FieldValues,
    day: FieldValues,
    month: FieldValues,
    weekday: FieldValues,
}

impl Cron {
    /// The first matching time after `us` (microseconds since 1970); `None` after the year 9999.
    pub fn next_after_us(&self, us: u64) -> Option<u64> {
        let after = Timestamp::from_microsecond(i64::try_from(us).ok()?).ok()?;
        let next = self.next_after(after)?;
        u64::try_from(next.as_microsecond()).ok()
    }

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let now = after.to_zoned(TimeZone::UTC).datetime();
        let mut date = now.date();
        let (hour, minute) = (now.hour().cast_unsigned(), now.minute().cast_unsigned());
        // Later on the same day, otherwise the first matching minute of the next matching day.
        if self.matches_day(date)
            && let Some((hour, minute)) = self.later_that_day(hour, minute)
        {
            return moment(date, hour, minute);
        }
        let hour = self.hour.from(0).next()?;
        let minute = self.minute.from(0).next()?;
        for _ in 0..SEARCH_DAYS_MAX {
            date = date.checked_add(1.day()).ok()?;
            if self.matches_day(date) {
                return moment(date, hour, minute);
            }
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.day.has(date.day().cast_unsigned());
        let weekday = date.weekday().to_sunday_zero_offset().cast_unsigned();
        let weekday = self.weekday.has(weekday);
        let is_day = if self.day.is_star || self.weekday.is_star {
            day && weekday
        } else {
            day || weekday
        };
        is_day && self.month.has(date.month().cast_unsigned())
    }

    /// The first matching hour and minute after these, on a matching day.
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
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(CronError::TooLong { len: text.len() });
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let Ok(texts) = <[&str; 5]>::try_from(fields.as_slice()) else {
            return Err(CronError::Fields {
                fields: fields.len(),
            });
        };
        let mut values = [None; 5];
        for ((slot, field), text) in values.iter_mut().zip(CronField::ALL).zip(texts) {
            let parsed = FieldValues::parse(field, text);
            *slot = Some(parsed.map_err(|reason| CronError::Field { field, reason })?);
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
            text: texts.join(" "),
            minute,
            hour,
            day,
            month,
            weekday,
        };
        // Every satisfiable expression fires within 41 years of any start.
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

/// Why a cron expression is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The expression is too long.
    #[error("{len} bytes; {EXPRESSION_BYTES_MAX} is the most")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The expression does not have five fields.
    #[error(
        "{fields} fields; a cron expression has five: minute, hour, day of month, month, day of week"
    )]
    Fields {
        /// The number of fields it has.
        fields: usize,
    },
    /// A field is not valid.
    #[error("{field}: {reason}")]
    Field {
        /// The field.
        field: CronField,
        /// What is wrong with it.
        reason: String,
    },
    /// The day does not exist, such as 30 February.
    #[error("day of month: no such month has that day, so it never fires")]
    Never,
}

fn moment(date: Date, hour: u8, minute: u8) -> Option<Timestamp> {
    let at = date.at(hour.cast_signed(), minute.cast_signed(), 0, 0);
    let zoned = TimeZone::UTC.to_zoned(at).ok()?;
    Some(zoned.timestamp())
}
