//! Calendar months, UTC: what `PostgreSQL`'s partitions and retention go by.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// The year 9999, from which on there are no months; see the migration that makes `sample_far`.
const FAR_US: u64 = 253_370_764_800_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Month {
    first: Date,
}

impl Month {
    /// The month of a moment; nothing from the year 9999 on.
    pub(super) fn of(us: u64) -> Option<Self> {
        let first = moment(us).filter(|_| us < FAR_US)?.date().first_of_month();
        Some(Self { first })
    }

    pub(super) fn next(self) -> Option<Self> {
        let first = self.first.checked_add(1.month()).ok()?;
        Some(Self { first })
    }

    pub(super) fn start_us(self) -> u64 {
        us(self.first.to_datetime(jiff::civil::Time::midnight()))
    }

    /// The name of its partition.
    pub(super) fn partition(self) -> String {
        format!("sample_{:04}{:02}", self.first.year(), self.first.month())
    }

    /// The month of a partition's name.
    pub(super) fn of_partition(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("sample_")?;
        let (year, month) = digits.split_at_checked(4)?;
        let first = Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?;
        Some(Self { first }).filter(|month| month.partition() == name)
    }
}

/// So many calendar months before a moment; the beginning of time when that is not in the calendar.
pub(super) fn months_before_us(now_us: u64, months: u32) -> u64 {
    let span = Span::new().try_months(months).ok();
    let before = moment(now_us)
        .zip(span)
        .and_then(|(now, span)| now.checked_sub(span).ok());
    before.map_or(0, us)
}

fn moment(us: u64) -> Option<DateTime> {
    let timestamp = Timestamp::from_microsecond(i64::try_from(us).ok()?).ok()?;
    Some(timestamp.to_zoned(TimeZone::UTC).datetime())
}

fn us(moment: DateTime) -> u64 {
    let zoned = moment.to_zoned(TimeZone::UTC);
    zoned.map_or(0, |zoned| {
        zoned.timestamp().as_microsecond().max(0).unsigned_abs()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: u64 = 86_400 * 1_000_000;

    #[test]
    fn months_follow_each_other_without_a_hole() {
        let mut month = Month::of(0).unwrap();
        assert_eq!(
            (month.start_us(), month.partition().as_str()),
            (0, "sample_197001")
        );
        // All of them, until there are none.
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
    fn other_tables_are_no_months() {
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
