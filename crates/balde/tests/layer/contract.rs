//! 200 and 429 responses parsed strictly, for both stores and all strategies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::{Router, routing::get};
use balde::http::headers::{HeaderOptions, ResetFormat};
use balde::http::{LimitRule, RateLimitLayer};
use http::StatusCode;

use crate::fixture::{Client, ReceivedResponse, Server, TestStore};

const BURST: u64 = 5;

/// A limit and its expected window. It refills so slowly that no token arrives during a test.
struct Case {
    limit: &'static str,
    window_s: i64,
}

const CASES: [Case; 3] = [
    Case {
        limit: "1/min burst 5",
        window_s: 300,
    },
    Case {
        limit: "5/min stepwise",
        window_s: 60,
    },
    Case {
        limit: "5/min window",
        window_s: 60,
    },
];

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[tokio::test]
async fn a_strict_client_finds_every_field_right_until_it_is_refused() {
    for store in TestStore::all() {
        for case in &CASES {
            let limiter = store.limiter("per-caller", case.limit).await;
            let server = Server::start(app(), RateLimitLayer::new(limiter)).await;
            let client = Client::new();
            let context = format!("{} {}", store.name(), case.limit);

            for left in (0..BURST).rev() {
                let response = client.get(&server, "/").await;
                assert_eq!(response.status, StatusCode::OK, "{context}");
                assert_eq!(response.body, "hello");
                assert_eq!(response.integer("x-ratelimit-remaining"), left, "{context}");
                assert_eq!(response.optional_integer("retry-after"), None, "{context}");
                assert_fields(&response, case, left, &context);
            }

            let refused = client.get(&server, "/").await;
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{context}");
            assert_fields(&refused, case, 0, &context);
            let retry_after = refused.integer("retry-after");
            assert!((1..=60).contains(&retry_after), "{context}: {retry_after}");
            assert_eq!(refused.integer("x-ratelimit-reset"), retry_after);
            assert_eq!(
                refused.headers["content-type"], "application/problem+json",
                "{context}"
            );
        }
    }
}

// With Redis this waits in real time, for the seconds that Retry-After promises.
#[tokio::test]
async fn a_client_that_waits_exactly_retry_after_is_admitted() {
    for store in TestStore::all() {
        for limit in [
            "1/s burst 3",
            "3/2s window",
            "2/2s stepwise",
            "10/11s burst 2",
        ] {
            let limiter = store.limiter("per-caller", limit).await;
            let server = Server::start(app(), RateLimitLayer::new(limiter)).await;
            let client = Client::new();
            let mut responses = 0;
            let refused = loop {
                let response = client.get(&server, "/").await;
                if response.status == StatusCode::TOO_MANY_REQUESTS {
                    break response;
                }
                responses += 1;
                assert!(responses < 1_000, "{limit} refuses in the end");
            };
            let retry_after = refused.integer("retry-after");
            assert!((1..=2).contains(&retry_after), "{limit}: {retry_after}");
            store.wait(Duration::from_secs(retry_after)).await;
            let again = client.get(&server, "/").await;
            assert_eq!(again.status, StatusCode::OK, "{} {limit}", store.name());
        }
    }
}

fn assert_fields(response: &ReceivedResponse, case: &Case, left: u64, context: &str) {
    assert_eq!(response.integer("x-ratelimit-limit"), BURST, "{context}");
    assert!(response.integer("x-ratelimit-reset") <= 60, "{context}");
    let policy = response.list("ratelimit-policy");
    assert_eq!(policy.len(), 1, "{context}");
    let of = |parameter| response.parameter("ratelimit-policy", "per-caller", parameter);
    assert_eq!(of("q"), 5, "{context}");
    assert_eq!(of("w"), case.window_s, "{context}");
    let of = |parameter| response.parameter("ratelimit", "per-caller", parameter);
    assert_eq!(of("r"), i64::try_from(left).unwrap(), "{context}");
    assert!((0..=case.window_s).contains(&of("t")), "{context}");
}

#[tokio::test]
async fn several_limits_are_a_list_and_the_one_that_refuses_is_named() {
    for store in TestStore::all() {
        let layer = RateLimitLayer::new(store.limiter("per-caller", "10/min").await)
            .and(LimitRule::global(store.limiter("overall", "2/min").await));
        let server = Server::start(app(), layer).await;
        let client = Client::new();

        let first = client.get(&server, "/").await;
        let names: Vec<String> = first
            .list("ratelimit")
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        assert_eq!(names, ["per-caller", "overall"], "{}", store.name());
        assert_eq!(first.parameter("ratelimit-policy", "overall", "q"), 2);
        // X-RateLimit-* reports the more restrictive limit.
        assert_eq!(first.integer("x-ratelimit-limit"), 2);
        assert_eq!(first.integer("x-ratelimit-remaining"), 1);

        client.get(&server, "/").await;
        let refused = client.get(&server, "/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let body: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
        assert!(body.to_string().contains("overall"), "{body}");
        // All or nothing: the refused request took nothing from the other bucket.
        assert_eq!(refused.parameter("ratelimit", "per-caller", "r"), 8);
    }
}

#[tokio::test]
async fn reset_can_be_a_time_of_day() {
    for store in TestStore::all() {
        let layer = RateLimitLayer::new(store.limiter("per-caller", "1/min").await)
            .headers(HeaderOptions::default().reset(ResetFormat::UnixTime));
        let server = Server::start(app(), layer).await;
        let client = Client::new();
        client.get(&server, "/").await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let reset = client.get(&server, "/").await.integer("x-ratelimit-reset");
        let ahead = reset - now.as_secs();
        // A minute, plus the time that the requests took.
        assert!((55..=120).contains(&ahead), "{}: {ahead}", store.name());
    }
}
