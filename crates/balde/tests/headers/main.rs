//! Header fields parse strictly and report the decision.

mod properties;
mod reading;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use balde::http::{HeaderOptions, ResetFormat};
use balde::{Clock, Decision, ManualClock, RateLimiter, check_all_blocking};
use http::HeaderMap;
use sfv::{BareItem, List, ListEntry, Parser};

const NOW_S: u64 = 1_800_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S)
}

fn limiter(name: &str, limit: &str, clock: &ManualClock) -> RateLimiter {
    let builder = RateLimiter::builder().name(name).limit(limit);
    builder.clock(Clock::manual(clock)).build().unwrap()
}

fn fields(parts: &[(&str, &Decision)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    HeaderOptions::default().write(&mut headers, parts, now());
    headers
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    text(headers, name).unwrap().parse().unwrap()
}

/// Parses a field by RFC 9651. Every member must be a string with integer parameters.
fn strictly(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(headers[name].as_bytes()).parse().unwrap();
    let member = |entry: ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("{name}: a list in a list")
        };
        let BareItem::String(policy) = item.bare_item else {
            panic!("{name}: a name without quotes")
        };
        let params = item.params.into_iter().map(|(key, value)| {
            let BareItem::Integer(number) = value else {
                panic!("{name}: {key:?} is no whole number")
            };
            (key.as_str().to_owned(), i64::from(number))
        });
        (policy.as_str().to_owned(), params.collect())
    };
    list.into_iter().map(member).collect()
}

#[test]
fn a_bucket_reports_when_the_next_request_passes() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("per-user", "1/s burst 3", &clock);
    let check = || limiter.blocking().check("alice");

    for (remaining, reset, t) in [(2, 0, 1), (1, 0, 2), (0, 1, 3)] {
        let headers = fields(&[("per-user", &check())]);
        assert_eq!(text(&headers, "x-ratelimit-limit"), Some("3"));
        assert_eq!(number(&headers, "x-ratelimit-remaining"), remaining);
        assert_eq!(number(&headers, "x-ratelimit-reset"), reset);
        assert_eq!(text(&headers, "retry-after"), None);
        assert_eq!(
            text(&headers, "ratelimit-policy"),
            Some("\"per-user\";q=3;w=3")
        );
        let expected = format!("\"per-user\";r={remaining};t={t}");
        assert_eq!(text(&headers, "ratelimit"), Some(&*expected));
    }
    clock.advance(Duration::from_micros(1));
    let headers = fields(&[("per-user", &check())]);
    assert_eq!(text(&headers, "retry-after"), Some("1"));
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("1"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"per-user\";r=0;t=1"));
}

#[test]
fn a_window_reports_when_it_ends() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("w", "2/min window", &clock);
    let check = || fields(&[("w", &limiter.blocking().check("alice"))]);

    assert_eq!(text(&check(), "x-ratelimit-reset"), Some("60"));
    clock.advance(Duration::from_millis(10_500));
    let headers = check();
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("50"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"w\";r=0;t=50"));
    let headers = check();
    assert_eq!(text(&headers, "retry-after"), Some("50"));
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("50"));
    assert_eq!(text(&headers, "ratelimit-policy"), Some("\"w\";q=2;w=60"));
}

#[test]
fn a_time_of_day_is_never_too_early() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("w", "1/min window", &clock);
    let decision = limiter.blocking().check("alice");
    let mut headers = HeaderMap::new();
    let options = HeaderOptions::default().reset(ResetFormat::UnixTime);
    // Half a second into NOW_S, so the window ends half a second into the last one.
    options.write(
        &mut headers,
        &[("w", &decision)],
        now() + Duration::from_millis(500),
    );
    assert_eq!(number(&headers, "x-ratelimit-reset"), NOW_S + 61);
    options.write(&mut headers, &[("w", &decision)], now());
    assert_eq!(number(&headers, "x-ratelimit-reset"), NOW_S + 60);
}

#[test]
fn several_limits_are_a_list_and_the_x_fields_report_the_most_restrictive_one() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let user = limiter("per-user", "10/s", &clock);
    let tenant = limiter("per-tenant", "3/min", &clock);
    let all = limiter("everyone", "1000/s", &clock);
    let limiters = [&user, &tenant, &all];
    let check = || check_all_blocking(&[user.request("a"), tenant.request("t"), all.request("*")]);
    let write = |decisions: &[Decision]| {
        let names = limiters.iter().map(|one| one.name());
        let parts: Vec<_> = names.zip(decisions).collect();
        fields(&parts)
    };

    let headers = write(check().parts());
    assert_eq!(
        text(&headers, "x-ratelimit-limit"),
        Some("3"),
        "it has the fewest tokens left"
    );
    assert_eq!(text(&headers, "x-ratelimit-remaining"), Some("2"));
    assert_eq!(
        text(&headers, "ratelimit-policy"),
        Some("\"per-user\";q=10;w=1, \"per-tenant\";q=3;w=60, \"everyone\";q=1000;w=1")
    );
    assert_eq!(
        text(&headers, "ratelimit"),
        Some("\"per-user\";r=9;t=1, \"per-tenant\";r=2;t=20, \"everyone\";r=999;t=1")
    );
    check();
    check();
    let headers = write(check().parts());
    assert_eq!(text(&headers, "x-ratelimit-limit"), Some("3"), "it refused");
    assert_eq!(text(&headers, "retry-after"), Some("20"));
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("20"));

    // If two refuse, the one with the longer wait.
    user.blocking().check_n("a", 7);
    let multi = check_all_blocking(&[
        user.request_n("a", 2),
        tenant.request("t"),
        all.request("*"),
    ]);
    let headers = write(multi.parts());
    assert_eq!(text(&headers, "x-ratelimit-limit"), Some("3"));
    assert_eq!(text(&headers, "retry-after"), Some("20"));
}

#[test]
fn there_is_no_retry_after_if_waiting_does_not_help() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("small", "1/s burst 3", &clock);
    let never = limiter.blocking().check_n("alice", 4);
    let headers = fields(&[("small", &never)]);
    assert_eq!(text(&headers, "retry-after"), None);
    assert_eq!(text(&headers, "x-ratelimit-remaining"), Some("3"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"small\";r=3;t=0"));
}

#[test]
fn a_bad_key_is_reported_in_the_policy_only() {
    let limiter = RateLimiter::new("1/s burst 3").unwrap();
    let bad = limiter.blocking().check("");
    let mut headers = HeaderMap::new();
    headers.insert("ratelimit", "\"stale\";r=1".parse().unwrap());
    HeaderOptions::default().write(&mut headers, &[("small", &bad)], now());
    let names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["ratelimit-policy"]);
}

#[test]
fn families_can_be_left_out() {
    let limiter = RateLimiter::new("1/h").unwrap();
    limiter.blocking().check("alice");
    let refused = limiter.blocking().check("alice");
    let names = |options: HeaderOptions| {
        let mut headers = HeaderMap::new();
        options.write(&mut headers, &[("default", &refused)], now());
        let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    let options = HeaderOptions::default();
    assert_eq!(
        names(options.without_x_fields()),
        ["ratelimit", "ratelimit-policy", "retry-after"]
    );
    assert_eq!(
        names(options.without_ietf_fields()),
        [
            "retry-after",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset"
        ]
    );
    let none = names(options.without_x_fields().without_ietf_fields());
    assert_eq!(none, ["retry-after"]);
}

#[test]
fn names_of_all_kinds_are_distinct_and_parse() {
    let limiter = RateLimiter::new("5/s").unwrap();
    let decision = limiter.blocking().check("alice");
    let names = [
        "default",
        "default",
        "default-2",
        "é\r\nSet-Cookie: a=b",
        "a\"b\\",
        "",
    ];
    let parts: Vec<_> = names.iter().map(|name| (*name, &decision)).collect();
    let headers = fields(&parts);
    let read: Vec<String> = strictly(&headers, "ratelimit")
        .into_iter()
        .map(|one| one.0)
        .collect();
    assert_eq!(
        read,
        [
            "default",
            "default-2",
            "default-2-2",
            "%C3%A9%0D%0ASet-Cookie: a=b",
            "a\"b\\",
            ""
        ]
    );
    assert_eq!(strictly(&headers, "ratelimit-policy").len(), names.len());
    let reported = balde::http::headers::read(&headers, now());
    assert_eq!(reported.limits.len(), names.len() + 1);
}
