//! What is written is read by a strict parser and means the decision.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use balde::http::headers::{INTEGER_MAX, ReportedLimit, read};
use balde::http::{HeaderOptions, Reset};
use balde::{Clock, Decision, Limit, ManualClock, RateLimiter, check_all_blocking};
use http::HeaderMap;
use proptest::prelude::*;
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

/// Reads a field as RFC 9651 says, every member a string with whole numbers.
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
fn a_bucket_tells_when_the_next_request_passes() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("per-user", "1/s burst 3", &clock);
    let ask = || limiter.blocking().check("alice");

    for (remaining, reset, t) in [(2, 0, 1), (1, 0, 2), (0, 1, 3)] {
        let headers = fields(&[("per-user", &ask())]);
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
    let headers = fields(&[("per-user", &ask())]);
    assert_eq!(text(&headers, "retry-after"), Some("1"));
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("1"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"per-user\";r=0;t=1"));
}

#[test]
fn a_window_tells_when_it_ends() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("w", "2/min window", &clock);
    let ask = || fields(&[("w", &limiter.blocking().check("alice"))]);

    assert_eq!(text(&ask(), "x-ratelimit-reset"), Some("60"));
    clock.advance(Duration::from_millis(10_500));
    let headers = ask();
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("50"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"w\";r=0;t=50"));
    let headers = ask();
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
    let options = HeaderOptions::default().reset(Reset::UnixTime);
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
fn several_limits_are_a_list_and_the_oldest_fields_speak_of_the_one_that_matters() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let user = limiter("per-user", "10/s", &clock);
    let tenant = limiter("per-tenant", "3/min", &clock);
    let all = limiter("everyone", "1000/s", &clock);
    let limiters = [&user, &tenant, &all];
    let ask = || check_all_blocking(&[user.ask("a"), tenant.ask("t"), all.ask("*")]);
    let write = |decisions: &[Decision]| {
        let limits = limiters.map(|one| (one.name(), one.limit()));
        let mut headers = HeaderMap::new();
        let writer = HeaderOptions::default().writer(limits);
        writer.write(&mut headers, decisions, now());
        let parts: Vec<_> = limiters
            .iter()
            .map(|one| one.name())
            .zip(decisions)
            .collect();
        assert_eq!(headers, fields(&parts), "both ways of writing say the same");
        headers
    };

    let headers = write(ask().parts());
    assert_eq!(
        text(&headers, "x-ratelimit-limit"),
        Some("3"),
        "least is left of it"
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
    ask();
    ask();
    let headers = write(ask().parts());
    assert_eq!(text(&headers, "x-ratelimit-limit"), Some("3"), "it refused");
    assert_eq!(text(&headers, "retry-after"), Some("20"));
    assert_eq!(text(&headers, "x-ratelimit-reset"), Some("20"));

    // Where two refuse, the one that refuses longer.
    user.blocking().check_n("a", 7);
    let joint = check_all_blocking(&[user.ask_n("a", 2), tenant.ask("t"), all.ask("*")]);
    let headers = write(joint.parts());
    assert_eq!(text(&headers, "x-ratelimit-limit"), Some("3"));
    assert_eq!(text(&headers, "retry-after"), Some("20"));
}

#[test]
fn waiting_is_not_advised_where_it_does_not_help() {
    let clock = ManualClock::at_us(NOW_S * 1_000_000);
    let limiter = limiter("small", "1/s burst 3", &clock);
    let never = limiter.blocking().check_n("alice", 4);
    let headers = fields(&[("small", &never)]);
    assert_eq!(text(&headers, "retry-after"), None);
    assert_eq!(text(&headers, "x-ratelimit-remaining"), Some("3"));
    assert_eq!(text(&headers, "ratelimit"), Some("\"small\";r=3;t=0"));
}

#[test]
fn of_a_bad_key_no_number_is_invented() {
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
fn names_of_all_kinds_stay_apart_and_parse() {
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

#[test]
fn a_limit_that_was_changed_is_told_as_it_is_now() {
    let limiter = RateLimiter::new("5/s").unwrap();
    let writer = HeaderOptions::default().writer([("a", limiter.limit())]);
    limiter.set_limit("50/s").unwrap();
    let decision = limiter.blocking().check("alice");
    let mut headers = HeaderMap::new();
    writer.write(&mut headers, &[decision], now());
    assert_eq!(text(&headers, "x-ratelimit-limit"), Some("50"));
    assert_eq!(text(&headers, "ratelimit-policy"), Some("\"a\";q=50;w=1"));
}

#[test]
fn clients_read_what_others_write() {
    let headers = |lines: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    };
    let retry = |value: &str| read(&headers(&[("retry-after", value)]), now()).retry_after;
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(retry("0"), seconds(0));
    assert_eq!(retry("120"), seconds(120));
    assert_eq!(retry(" 7 "), seconds(7));
    assert_eq!(retry("Fri, 15 Jan 2027 08:00:10 GMT"), seconds(10));
    assert_eq!(retry("Friday, 15-Jan-27 08:00:10 GMT"), seconds(10));
    assert_eq!(retry("Fri, 15 Jan 2021 08:00:10 GMT"), seconds(0));
    for garbage in [
        "",
        "-1",
        "+1",
        "1.5",
        "soon",
        "1 2",
        "Fri, 99 Foo 2027 08:00:10 GMT",
    ] {
        assert_eq!(retry(garbage), None, "{garbage}");
    }
    let far = retry("99999999999999999999999999").unwrap();
    assert!(std::time::Instant::now().checked_add(far).is_some());

    let x = |reset: &str| {
        let lines = [("x-ratelimit-limit", "60"), ("x-ratelimit-reset", reset)];
        let limits = read(&headers(&lines), now()).limits;
        assert_eq!((limits.len(), limits[0].quota), (1, Some(60)));
        limits[0].reset
    };
    assert_eq!(x("30"), seconds(30));
    assert_eq!(x("29.2"), seconds(30));
    assert_eq!(x("1800000030"), seconds(30));
    assert_eq!(x("1800000030000"), seconds(30));
    assert_eq!(x("1700000000"), seconds(0));
    assert_eq!(x("tomorrow"), None);

    // Lists over several lines, names without quotes, parameters of others.
    let read_here = read(
        &headers(&[
            ("ratelimit-policy", "\"burst\";q=100;w=60;qu=\"requests\""),
            ("ratelimit-policy", "daily;q=1000;w=86400"),
            (
                "ratelimit",
                "\"daily\";r=5, \"other\";r=1;t=2;x=?1, \"burst\";r=50;t=30;pk=:AA==:",
            ),
        ]),
        now(),
    );
    let limit =
        |name: &str, quota, window: Option<u64>, remaining, reset: Option<u64>| ReportedLimit {
            name: Some(name.to_owned()),
            quota,
            window: window.map(Duration::from_secs),
            remaining,
            reset: reset.map(Duration::from_secs),
        };
    assert_eq!(
        read_here.limits,
        [
            limit("burst", Some(100), Some(60), Some(50), Some(30)),
            limit("daily", Some(1_000), Some(86_400), Some(5), None),
            limit("other", None, None, Some(1), Some(2)),
        ]
    );
    // A field with a fault in it is no field at all.
    for broken in [
        "\"a\";r=1,",
        "\"a;r=1",
        "\"a\";r=1;;",
        "limit=1",
        "\"a\";r=9999999999999999",
    ] {
        assert_eq!(
            read(&headers(&[("ratelimit", broken)]), now()).limits,
            [],
            "{broken}"
        );
    }
    for odd in ["\"a\";r=-1;t=x", "\"a\"", "(\"a\");r=1, \"a\";r=1.5"] {
        let limits = read(&headers(&[("ratelimit", odd)]), now()).limits;
        assert!(limits.iter().all(|one| one.remaining.is_none()), "{odd}");
    }
}

#[test]
fn what_is_read_is_bounded() {
    let mut headers = HeaderMap::new();
    let many: Vec<String> = (0..1_000).map(|n| format!("\"{n}\";r=1")).collect();
    headers.insert("ratelimit", many.join(", ").parse().unwrap());
    assert_eq!(read(&headers, now()).limits.len(), 64);
    let huge = format!("\"{}\";r=1", "x".repeat(1 << 20));
    headers.insert("ratelimit", huge.parse().unwrap());
    headers.insert("retry-after", "1".repeat(1 << 20).parse().unwrap());
    headers.insert("x-ratelimit-limit", "1".repeat(1 << 20).parse().unwrap());
    assert_eq!(
        read(&headers, now()),
        balde::http::headers::Reported::default()
    );
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let numbers = (1..=1_000_u64, 1..=10_000_000_u64, 1..=2_000_u64);
    (numbers, 0..3_u8).prop_filter_map("must be exact", |((tokens, period_us, capacity), kind)| {
        let period = Duration::from_micros(period_us * 13);
        match kind {
            0 => Limit::window(tokens, period).ok(),
            1 => Limit::bucket_of(capacity, tokens, period).ok(),
            _ => Limit::bucket_of(capacity, tokens, period)
                .ok()
                .map(Limit::stepwise),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fields_parse_strictly_and_mean_the_decision(
        limit in any_limit(),
        asks in prop::collection::vec((1..40_u64, 0..5_000_000_u64), 1..40),
        name in "\\PC{0,20}",
    ) {
        let clock = ManualClock::at_us(NOW_S * 1_000_000);
        let limiter = RateLimiter::builder()
            .limit(limit)
            .clock(Clock::manual(&clock))
            .build()
            .unwrap();
        let limiter = limiter.blocking();
        for (n, pause_us) in asks {
            clock.advance(Duration::from_micros(pause_us));
            let decision = limiter.check_n("alice", n);
            let headers = fields(&[(&name, &decision)]);
            let up = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);

            let (policy, standing) = (
                &strictly(&headers, "ratelimit-policy")[0],
                &strictly(&headers, "ratelimit")[0],
            );
            prop_assert_eq!(&policy.0, &standing.0);
            let is = |at: &(String, i64), key: &str, value: u64| {
                at.0 == key && u64::try_from(at.1) == Ok(value)
            };
            prop_assert!(is(&policy.1[0], "q", limit.capacity()));
            prop_assert!(is(&policy.1[1], "w", up(Duration::from_micros(limit.fill_us()))));
            prop_assert!(is(&standing.1[0], "r", decision.remaining()));
            let t = decision.retry_after().unwrap_or(decision.full_after());
            prop_assert!(is(&standing.1[1], "t", up(t)));
            prop_assert_eq!(number(&headers, "x-ratelimit-limit"), limit.capacity());
            prop_assert_eq!(number(&headers, "x-ratelimit-remaining"), decision.remaining());

            let reported = read(&headers, now());
            prop_assert_eq!(reported.limits.len(), 2);
            prop_assert_eq!(reported.limits[0].remaining, Some(decision.remaining()));
            prop_assert_eq!(reported.retry_after.is_some(), decision.retry_after().is_some());

            let reset = number(&headers, "x-ratelimit-reset");
            if let Some(wait) = reported.retry_after {
                // The advice is enough, and a second less would not be.
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert_eq!(reset, wait.as_secs());
                let exact = decision.retry_after().unwrap();
                prop_assert!(exact <= wait && wait < exact + Duration::from_secs(1));
                clock.advance(wait);
                prop_assert!(limiter.check_n("alice", n).is_allowed());
            } else if decision.is_allowed() {
                // After the reset the same passes again, where it fits at all; a bucket whose reset
                // is zero lets it pass now.
                clock.advance(Duration::from_secs(reset));
                prop_assert!(limiter.check_n("alice", n).is_allowed());
            }
        }
    }

    #[test]
    fn no_number_is_too_large_for_a_field(bits in 40..53_u32, less in 0..1_000_u64) {
        let capacity = (1_u64 << bits) - less;
        let limit = Limit::bucket_of(capacity, 1, Duration::from_micros(1));
        prop_assume!(limit.is_ok());
        let limiter = RateLimiter::new(limit.unwrap()).unwrap();
        let headers = fields(&[("big", &limiter.blocking().check("alice"))]);
        let policy = strictly(&headers, "ratelimit-policy");
        prop_assert_eq!(policy[0].1[0].1.cast_unsigned(), capacity.min(INTEGER_MAX));
        strictly(&headers, "ratelimit");
    }
}
