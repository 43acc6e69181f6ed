//! Calendar months in UTC, by which samples are partitioned and retention is counted.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// The start of the year 9999. Samples from then on are in the partition `sample_far`.
const FAR_US: u64 = 253_370_764_800_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Month {
    first: Date,
}

impl Month {
    /// Returns the month that contains a time; `None` from the year 9999 on.
    pub(super) fn of(us: u64) -> Option<Self> {
        let first = datetime(us)
            .filter(|_| us < FAR_US)?
            .date()
            .first_of_month();
        Some(Self { first })
    }

    pub(super) fn next(self) -> Option<Self> {
        let first = self.first.checked_add(1.month()).ok()?;
        Some(Self { first })
    }

    pub(super) fn start_us(self) -> u64 {
        us(self.first.to_datetime(jiff::civil::Time::midnight()))
    }

    /// Returns the name of the month's partition.
    pub(super) fn partition(self) -> String {
        format!("sample_{:04}{:02}", self.first.year(), self.first.month())
    }

    /// Parses the name of a partition.
    pub(super) fn of_partition(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("sample_")?;
        let (year, month) = digits.split_at_checked(4)?;
        let first = Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?;
        Some(Self { first }).filter(|month| month.partition() == name)
    }
}

/// Returns the time `months` calendar months before `now_us`; zero if that is out of range.
pub(super) fn months_before_us(now_us: u64, months: u32) -> u64 {
    let span = Span::new().try_months(months).ok();
    let before = datetime(now_us)
        .zip(span)
        .and_then(|(now, span)| now.checked_sub(span).ok());
    before.map_or(0, us)
}

fn datetime(us: u64) -> Option<DateTime> {
    let timestamp = Timestamp::from_microsecond(i64::try_from(us).ok()?).ok()?;
    Some(timestamp.to_zoned(TimeZone::UTC).datetime())
}

fn us(datetime: DateTime) -> u64 {
    let zoned = datetime.to_zoned(TimeZone::UTC);
    zoned.map_or(0, |zoned| {
        zoned.timestamp().as_microsecond().max(0).unsigned_abs()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: u64 = 86_400 * 1_000_000;

    #[test]
    fn consecutive_months_leave_no_gap() {
        let mut month = Month::of(0).unwrap();
        assert_eq!(
            (month.start_us(), month.partition().as_str()),
            (0, "sample_197001")
        );
        // Every month until the year 9999.
        for _ in 0..(9_999 - 1_970) * 12 {
            assert_eq!(Month::of_partition(&month.partition()), Some(month));
            let next = month.next().unwrap();
            let days = (next.start_us() - month.start_us()) / DAY_US;
            assert!((28..=31).contains(&days), "{month:?}");
            assert_eq!(Month::of(next.start_us() - 1), Some(month));
            month = next;
        }
        assert_eq!(month.start_us(), FAR_US);
        assert_eq!(Month::of(FAR_US), None);
        assert_eq!(Month::of(u64::MAX), None);
    }

    #[test]
    fn other_table_names_are_not_partitions() {
        for name in [
            "sample",
            "sample_far",
            "sample_2026",
            "sample_202613",
            "sample_20261x",
            "event",
        ] {
            assert_eq!(Month::of_partition(name), None, "{name}");
        }
    }

    #[test]
    fn retention_counts_calendar_months() {
        // 31 March 2024 less a month is 29 February.
        let march = 1_711_843_200_000_000;
        let february = 1_709_164_800_000_000;
        assert_eq!(months_before_us(march, 1), february);
        assert_eq!(months_before_us(march, 1_000_000), 0);
        assert_eq!(months_before_us(u64::MAX, 1), 0);
    }
}
