//! Times of day as RFC 3339 writes them, in UTC with microseconds.

use std::time::Duration;
#[cfg(feature = "logs")]
use std::time::UNIX_EPOCH;

#[cfg(feature = "logs")]
use crate::clock::time_of_day;

const DAY_S: u64 = 86_400;

/// The time of day.
#[cfg(feature = "logs")]
pub(super) fn now() -> String {
    let since_epoch = time_of_day().duration_since(UNIX_EPOCH);
    rfc_3339(since_epoch.unwrap_or_default())
}

/// A time in microseconds of Unix time.
pub(super) fn at_us(us: u64) -> String {
    rfc_3339(Duration::from_micros(us))
}

fn rfc_3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = date(seconds / DAY_S);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let us = since_epoch.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
}

/// Year, month and day. Counts from 1 March of the year 0, so that a leap day is the last of a year
/// and every five months have 153 days.
fn date(days_since_epoch: u64) -> (u64, u64, u64) {
    let days = days_since_epoch + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d @SECONDS`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000000Z"),
            (1_794_700_800, "2026-11-15T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc_3339(Duration::from_secs(seconds)), text);
        }
        let us = Duration::from_micros(1_794_700_800_000_001);
        assert_eq!(rfc_3339(us), "2026-11-15T00:00:00.000001Z");
    }
}
