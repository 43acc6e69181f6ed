//! Reading the header fields of other servers.

use std::time::Duration;

use balde::http::headers::{LimitStatus, read};
use http::HeaderMap;

use super::now;

#[test]
fn fields_of_other_servers_are_read() {
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

    // Lists over several lines, names without quotes, unknown parameters.
    let status = read(
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
        |name: &str, quota, window: Option<u64>, remaining, reset: Option<u64>| LimitStatus {
            name: Some(name.to_owned()),
            quota,
            window: window.map(Duration::from_secs),
            remaining,
            reset: reset.map(Duration::from_secs),
        };
    assert_eq!(
        status.limits,
        [
            limit("burst", Some(100), Some(60), Some(50), Some(30)),
            limit("daily", Some(1_000), Some(86_400), Some(5), None),
            limit("other", None, None, Some(1), Some(2)),
        ]
    );
    // A field with a syntax error is ignored as a whole.
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
        balde::http::headers::RateLimitStatus::default()
    );
}
