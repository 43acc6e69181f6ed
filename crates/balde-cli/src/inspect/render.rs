//! Buckets as a table or as JSON.

use std::fmt::Write as _;

use balde::StoredBucket;
use serde_json::{Value, json};

use super::args::Wanted;
use super::find::{Found, Scanned};
use crate::table::{aligned, duration, grouped};

const DAY_S: u64 = 86_400;

pub(super) fn text(wanted: &Wanted<'_>, found: &Found) -> String {
    let mut text = String::new();
    if let (Wanted::Key { limiter, key, .. }, true) = (wanted, found.buckets.is_empty()) {
        let key = shown(key);
        let _infallible = writeln!(
            text,
            "{limiter}, {key}: full. No bucket is stored: the key has not been used since it was \
             last full, or never."
        );
    } else if !found.buckets.is_empty() {
        let titles = [
            "Limiter",
            "Key",
            "Level",
            "Capacity",
            "Left",
            "Next token",
            "Full in",
            "Full at",
            "Limit",
        ];
        let is_number = [false, false, true, true, true, true, true, true, false];
        let rows: Vec<_> = found.buckets.iter().map(row).collect();
        text.push_str(&aligned(titles, is_number, &rows));
    }
    if let Some(scanned) = &found.scanned {
        text.push_str(&summary(scanned, found.buckets.len()));
    }
    text
}

fn row(bucket: &StoredBucket) -> [String; 9] {
    let capacity = bucket.limit().capacity();
    let left = i128::from(bucket.level().max(0)) * 100 / i128::from(capacity.max(1));
    let sign = if bucket.level() < 0 { "-" } else { "" };
    let next = match us(bucket.next_after()) {
        0 => "now".to_owned(),
        next => format!("in {}", rounded(next)),
    };
    let full_us = us(bucket.full_after());
    [
        bucket.limiter.clone(),
        shown(&bucket.key),
        format!("{sign}{}", grouped(bucket.level().unsigned_abs())),
        grouped(capacity),
        format!("{left} %"),
        next,
        rounded(full_us),
        time_of_day(bucket.now_us(), full_us),
        bucket.limit().to_string(),
    ]
}

fn summary(scanned: &Scanned, shown: usize) -> String {
    let (buckets, keys) = (grouped(scanned.buckets), grouped(scanned.keys));
    let mut text = format!("\n{shown} of {buckets} buckets, in {keys} keys");
    if !scanned.is_complete {
        let all = grouped(scanned.keys_in_server);
        let _infallible = write!(text, " of {all}: the scan stopped early, see --scan-max");
    }
    if scanned.foreign > 0 {
        let foreign = grouped(scanned.foreign);
        let _infallible = write!(text, "; {foreign} keys are named like buckets and are none");
    }
    text + "\n"
}

pub(super) fn json(wanted: &Wanted<'_>, found: &Found, is_line: bool) -> String {
    let value = match wanted {
        Wanted::Key { limiter, key, .. } => match found.buckets.first() {
            Some(bucket) => bucket_json(bucket),
            None => json!({
                "limiter": limiter,
                "key": String::from_utf8_lossy(key),
                "is_stored": false,
            }),
        },
        _ => json!({
            "buckets": found.buckets.iter().map(bucket_json).collect::<Vec<_>>(),
            "scanned": found.scanned.as_ref().map(|scanned| json!({
                "keys": scanned.keys,
                "keys_in_server": scanned.keys_in_server,
                "buckets": scanned.buckets,
                "foreign": scanned.foreign,
                "is_complete": scanned.is_complete,
            })),
        }),
    };
    if is_line {
        format!("{value}\n")
    } else {
        format!("{value:#}\n")
    }
}

fn bucket_json(bucket: &StoredBucket) -> Value {
    json!({
        "limiter": bucket.limiter,
        "key": String::from_utf8_lossy(&bucket.key),
        "hash_tag": bucket.hash_tag.as_ref().map(|tag| String::from_utf8_lossy(tag)),
        "is_stored": true,
        "limit": bucket.limit().to_string(),
        "capacity": bucket.limit().capacity(),
        "level": bucket.level(),
        "next_token_in_us": us(bucket.next_after()),
        "full_in_us": us(bucket.full_after()),
        "read_at_us": bucket.now_us(),
    })
}

/// A key as one line of printable text.
fn shown(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => key.escape_ascii().to_string(),
    }
}

fn us(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds are enough below a minute, and seconds above.
fn rounded(us: u64) -> String {
    let unit = if us < 60_000_000 { 1_000 } else { 1_000_000 };
    duration(us.div_ceil(unit) * unit)
}

/// The time of day in UTC, `in_us` after `now_us`, with the days between.
fn time_of_day(now_us: u64, in_us: u64) -> String {
    let [now_s, then_s] = [now_us, now_us.saturating_add(in_us)].map(|at_us| at_us / 1_000_000);
    let (hours, minutes, seconds) = (then_s / 3_600 % 24, then_s / 60 % 60, then_s % 60);
    let time = format!("{hours:02}:{minutes:02}:{seconds:02} UTC");
    match then_s / DAY_S - now_s / DAY_S {
        0 => time,
        days => format!("{time} +{days} d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_times_are_printed_for_people() {
        assert_eq!(shown("joão".as_bytes()), "joão");
        assert_eq!(shown(b"a\nb\xff"), "a\\nb\\xff");
        assert_eq!(rounded(1_500), "2 ms");
        assert_eq!(rounded(61_200_000), "1 min 2 s");
        let midnight_us = 20_000 * DAY_S * 1_000_000;
        assert_eq!(time_of_day(midnight_us, 3_661_000_000), "01:01:01 UTC");
        assert_eq!(
            time_of_day(midnight_us - 1_000_000, 1_000_000),
            "00:00:00 UTC +1 d"
        );
    }
}
