//! Cron expressions against a model that walks minute by minute, and the errors of invalid ones.

use balde_monitor::schedule::Cron;
use jiff::Timestamp;
use proptest::prelude::*;

const MINUTE_US: u64 = 60_000_000;

/// How many minutes the model walks: fifty days.
const WALK: u64 = 50 * 1_440;

/// One field as written, part by part: first value, last value, step.
#[derive(Clone, Debug)]
enum Written {
    Star(u64),
    Parts(Vec<(u64, u64, u64)>),
}

impl Written {
    fn text(&self, names: &[&str]) -> String {
        let name = |value: u64| {
            let index = usize::try_from(value).unwrap();
            // Every other name, so that numbers and names meet in one list.
            let name = names
                .get(index)
                .filter(|name| !name.is_empty() && value.is_multiple_of(2));
            name.map_or(value.to_string(), |name| (*name).to_owned())
        };
        match self {
            Self::Star(1) => "*".to_owned(),
            Self::Star(step) => format!("*/{step}"),
            Self::Parts(parts) => {
                let part = |&(from, to, step): &(u64, u64, u64)| match (to - from, step) {
                    (0, _) => name(from),
                    (_, 1) => format!("{}-{}", name(from), name(to)),
                    _ => format!("{}-{}/{step}", name(from), name(to)),
                };
                parts.iter().map(part).collect::<Vec<_>>().join(",")
            }
        }
    }

    fn holds(&self, value: u64, least: u64) -> bool {
        match self {
            Self::Star(step) => (value - least).is_multiple_of(*step),
            Self::Parts(parts) => parts.iter().any(|&(from, to, step)| {
                (from..=to).contains(&value) && (value - from).is_multiple_of(step)
            }),
        }
    }
}

fn written(least: u64, most: u64) -> impl Strategy<Value = Written> {
    let part =
        (least..=most, least..=most, 1..=most).prop_map(|(a, b, step)| (a.min(b), a.max(b), step));
    prop_oneof![
        2 => Just(Written::Star(1)),
        1 => (1..=most).prop_map(Written::Star),
        2 => prop::collection::vec(part, 1..4).prop_map(Written::Parts),
    ]
}

const MONTHS: [&str; 13] = [
    "", "jan", "Feb", "MAR", "apr", "may", "JUN", "jul", "AUG", "sep", "Oct", "nov", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "mon", "Tue", "wed", "THU", "fri", "sat"];

#[derive(Clone, Debug)]
struct Line([Written; 5]);

impl Line {
    fn text(&self) -> String {
        let [minute, hour, day, month, weekday] = &self.0;
        let fields = [
            minute.text(&[]),
            hour.text(&[]),
            day.text(&[]),
            month.text(&MONTHS),
            weekday.text(&DAYS),
        ];
        fields.join(" ")
    }

    fn fires(&self, clock: &Clock) -> bool {
        let [minute, hour, day, month, weekday] = &self.0;
        let is_star = |field: &Written| matches!(field, Written::Star(_));
        let is_day = day.holds(clock.day, 1);
        // Sunday is 0 and 7.
        let is_weekday = weekday.holds(clock.weekday, 0)
            || clock.weekday == 0 && !is_star(weekday) && weekday.holds(7, 0);
        let is_on = if is_star(day) || is_star(weekday) {
            is_day && is_weekday
        } else {
            is_day || is_weekday
        };
        minute.holds(clock.minute, 0)
            && hour.holds(clock.hour, 0)
            && month.holds(clock.month, 1)
            && is_on
    }
}

fn line() -> impl Strategy<Value = Line> {
    (
        written(0, 59),
        written(0, 23),
        written(1, 31),
        written(1, 12),
        written(0, 7),
    )
        .prop_map(|(minute, hour, day, month, weekday)| Line([minute, hour, day, month, weekday]))
}

/// A calendar that knows nothing but how to turn a minute further.
#[derive(Clone, Debug)]
struct Clock {
    year: u64,
    month: u64,
    day: u64,
    weekday: u64,
    hour: u64,
    minute: u64,
}

impl Clock {
    /// The start of a day, so many days after Thursday, 1 January 1970.
    fn on_day(days: u64) -> Self {
        let mut clock = Self {
            year: 1970,
            month: 1,
            day: 1,
            weekday: 4,
            hour: 0,
            minute: 0,
        };
        for _ in 0..days {
            clock.turn_day();
        }
        clock
    }

    fn turn_minute(&mut self) {
        self.minute += 1;
        if self.minute == 60 {
            self.minute = 0;
            self.hour += 1;
        }
        if self.hour == 24 {
            self.hour = 0;
            self.turn_day();
        }
    }

    fn turn_day(&mut self) {
        let is_leap = self.year.is_multiple_of(4) && !self.year.is_multiple_of(100)
            || self.year.is_multiple_of(400);
        let days = match self.month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self.weekday = (self.weekday + 1) % 7;
        self.day += 1;
        if self.day > days {
            self.day = 1;
            self.month += 1;
        }
        if self.month > 12 {
            self.month = 1;
            self.year += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn the_next_time_is_the_first_minute_that_fits(
        line in line(),
        // Up to the year 2133, over 2100, which is no leap year.
        days in 0..60_000_u64,
        minute in 0..1_440_u64,
        us in 0..MINUTE_US,
    ) {
        let text = line.text();
        let Ok(cron) = text.parse::<Cron>() else {
            // Only days that no month has are refused, and then a day of the week cannot help.
            let error = text.parse::<Cron>().unwrap_err().to_string();
            prop_assert!(error.contains("never fires"), "{}: {}", text, error);
            return Ok(());
        };
        let mut clock = Clock::on_day(days);
        for _ in 0..minute {
            clock.turn_minute();
        }
        let start_us = (days * 1_440 + minute) * MINUTE_US;
        let expected = (1..=WALK).find(|_| {
            clock.turn_minute();
            line.fires(&clock)
        });
        let next = cron.next_after_us(start_us + us);
        match expected {
            Some(minutes) => prop_assert_eq!(next, Some(start_us + minutes * MINUTE_US), "{}", text),
            None => prop_assert!(next.unwrap() > start_us + WALK * MINUTE_US, "{}", text),
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-0-9*/,A-Za-z@ µ]{0,40}") {
        let _ = text.parse::<Cron>();
    }
}

fn next(line: &str, after: &str) -> String {
    let cron: Cron = line.parse().unwrap();
    let after: Timestamp = after.parse().unwrap();
    let after_us = u64::try_from(after.as_microsecond()).unwrap();
    let next = cron.next_after_us(after_us).map(|us| {
        let us = i64::try_from(us).unwrap();
        Timestamp::from_microsecond(us).unwrap().to_string()
    });
    next.unwrap_or("never".to_owned())
}

#[test]
fn rare_days_are_found_however_far_they_are() {
    assert_eq!(
        next("*/5 * * * *", "2026-01-01T00:00:00Z"),
        "2026-01-01T00:05:00Z"
    );
    assert_eq!(
        next("*/5 * * * *", "2026-12-31T23:59:59.9Z"),
        "2027-01-01T00:00:00Z"
    );
    assert_eq!(
        next("0 0 29 2 *", "2096-02-29T00:00:00Z"),
        "2104-02-29T00:00:00Z"
    );
    // A leap day on a Sunday: `*/7` is Sunday alone, and with a star both days must hold.
    assert_eq!(
        next("0 0 29 2 */7", "2088-02-29T00:00:00Z"),
        "2128-02-29T00:00:00Z"
    );
    assert_eq!(
        next("0 12 1 * MON", "2026-06-02T00:00:00Z"),
        "2026-06-08T12:00:00Z"
    );
    assert_eq!(
        next("0 0 * * 7", "2026-06-02T00:00:00Z"),
        "2026-06-07T00:00:00Z"
    );
    assert_eq!(next("* * * * *", "9999-12-30T22:00:00Z"), "never");
}

#[test]
fn errors_say_which_field_and_why() {
    for (line, expected) in [
        (
            "",
            "0 fields; a cron expression has five: minute, hour, day of month, month, day of week",
        ),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("60 * * * *", "minute: `60` is not 0 to 59"),
        ("* 24 * * *", "hour: `24` is not 0 to 23"),
        ("* * 0 * *", "day of month: `0` is not 1 to 31"),
        ("* * * FEV *", "month: `FEV` is not 1 to 12 or JAN to DEC"),
        ("* * * * 8", "day of week: `8` is not 0 to 7 or SUN to SAT"),
        ("*/0 * * * *", "minute: the step of `*/0` is not 1 to 59"),
        ("*/ * * * *", "minute: the step of `*/` is not 1 to 59"),
        (
            "5/10 * * * *",
            "minute: `5/10` steps through a single value",
        ),
        (
            "* 20-4 * * *",
            "hour: `20-4` runs backwards; write two ranges",
        ),
        ("1,,2 * * * *", "minute: `` is not 0 to 59"),
        ("+5 * * * *", "minute: `+5` is not 0 to 59"),
        ("* * 30 2 *", "day of month: no such month has that day"),
        ("* * 31 APR,JUN,SEP,NOV *", "never fires"),
    ] {
        let error = line.parse::<Cron>().unwrap_err().to_string();
        assert!(
            error.starts_with(expected) || error.ends_with(expected),
            "`{line}`: {error}"
        );
    }
    let long = "*,".repeat(400);
    assert!(
        long.parse::<Cron>()
            .unwrap_err()
            .to_string()
            .contains("800 bytes")
    );
}
