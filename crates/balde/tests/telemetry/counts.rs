//! Every decision is counted once, under what became of it.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use balde::telemetry::Metrics;
use balde::{
    AcquireError, Clock, Leases, OnFailure, RateLimiter, RedisStore, check_all, check_all_blocking,
};
use tokio::time::timeout;

use crate::redis_server::RedisServer;
use crate::{patience, value};

fn limiter(name: &str, limit: &str, metrics: &Metrics) -> RateLimiter {
    let builder = RateLimiter::builder().name(name).limit(limit);
    builder.metrics(metrics).build().unwrap()
}

fn decisions(metrics: &Metrics, policy: &str) -> [u64; 3] {
    let text = metrics.encode();
    ["allow", "deny", "fallback"].map(|decision| {
        let labels = format!("decision=\"{decision}\",policy=\"{policy}\"");
        value(&text, &format!("rate_limiter_decisions_total{{{labels}}}")).unwrap()
    })
}

#[test]
fn every_metric_is_there_from_the_first_scrape_on_and_zero() {
    let metrics = Metrics::new();
    let limiter = limiter("idle", "1/s", &metrics);
    let text = metrics.encode();
    for series in [
        r#"rate_limiter_decisions_total{decision="allow",policy="idle"}"#,
        r#"rate_limiter_decisions_total{decision="deny",policy="idle"}"#,
        r#"rate_limiter_decisions_total{decision="fallback",policy="idle"}"#,
        r#"rate_limiter_fallback_total{decision="allow",policy="idle"}"#,
        r#"rate_limiter_fallback_total{decision="deny",policy="idle"}"#,
        r#"rate_limiter_operations_total{operation="charge",policy="idle"}"#,
        r#"rate_limiter_bad_keys_total{policy="idle"}"#,
        r#"rate_limiter_lock_contention_total{policy="idle"}"#,
        r#"rate_limiter_keys{policy="idle"}"#,
        r#"rate_limiter_evicted_keys_total{policy="idle"}"#,
        r#"rate_limiter_waiters{policy="idle"}"#,
        r#"rate_limiter_waits_total{outcome="granted",policy="idle"}"#,
        r#"rate_limiter_waits_total{outcome="refused",policy="idle"}"#,
        r#"rate_limiter_lease_tokens{policy="idle"}"#,
        r#"rate_limiter_lease_tokens_max{policy="idle"}"#,
        r#"rate_limiter_backend_errors_total{reason="timeout"}"#,
        r#"rate_limiter_backend_errors_total{reason="disconnected"}"#,
        "rate_limiter_breaker_open",
        "rate_limiter_breaker_opened_total",
        r#"rate_limiter_latency_ms_count{storage_mode="memory"}"#,
        r#"rate_limiter_latency_ms_count{storage_mode="redis"}"#,
        "rate_limiter_script_duration_ms_count",
        r#"rate_limiter_script_duration_ms_bucket{le="+Inf"}"#,
    ] {
        assert_eq!(value(&text, series), Some(0), "{series}\n{text}");
    }
    drop(limiter);
}

#[tokio::test]
async fn each_way_of_asking_counts_once() {
    let metrics = Metrics::new();
    let limiter = limiter("counted", "10/h", &metrics);
    limiter.check("a").await;
    limiter.check_n("a", 4).await;
    limiter.take_up_to("a", 100).await;
    assert_eq!(decisions(&metrics, "counted"), [3, 0, 0]);
    limiter.blocking().check("a");
    limiter.blocking().check_n("b", 11);
    limiter.blocking().take_up_to("a", 1);
    limiter.check("").await;
    assert_eq!(decisions(&metrics, "counted"), [3, 4, 0]);

    limiter.peek("a").await.unwrap();
    limiter.blocking().charge("a", 2).unwrap();
    limiter.credit("a", 1).await.unwrap();
    limiter.blocking().set_level("a", 3).unwrap();
    let text = metrics.encode();
    for operation in ["peek", "charge", "credit", "set_level"] {
        let labels = format!("operation=\"{operation}\",policy=\"counted\"");
        let series = format!("rate_limiter_operations_total{{{labels}}}");
        assert_eq!(value(&text, &series), Some(1), "{series}");
    }
    assert_eq!(
        decisions(&metrics, "counted"),
        [3, 4, 0],
        "operations are no decisions"
    );
    let bad = value(&text, r#"rate_limiter_bad_keys_total{policy="counted"}"#);
    assert_eq!(bad, Some(1));
    let keys = value(&text, r#"rate_limiter_keys{policy="counted"}"#);
    assert_eq!(
        keys,
        Some(1),
        "b was refused more than there ever is, and is not kept"
    );
}

#[tokio::test]
async fn of_several_buckets_each_counts_its_own_part() {
    let metrics = Metrics::new();
    let per_user = limiter("per-user", "100/h", &metrics);
    let overall = limiter("overall", "2/h", &metrics);
    let requests = [per_user.request("a"), overall.request("everyone")];
    assert!(check_all(&requests).await.is_allowed());
    assert!(check_all_blocking(&requests).is_allowed());
    for _ in 0..3 {
        assert_eq!(check_all(&requests).await.refused_by(), Some("overall"));
    }
    assert_eq!(decisions(&metrics, "per-user"), [2, 0, 0]);
    assert_eq!(decisions(&metrics, "overall"), [2, 3, 0]);
}

#[test]
fn limiters_of_one_name_count_together_and_no_series_is_there_twice() {
    let metrics = Metrics::new();
    let many: Vec<_> = (0..3).map(|_| limiter("same", "1/h", &metrics)).collect();
    for limiter in &many {
        limiter.blocking().check("a");
    }
    drop(many);
    assert_eq!(
        decisions(&metrics, "same"),
        [3, 0, 0],
        "what was counted stays"
    );
    let text = metrics.encode();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<_> = series
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
}

#[tokio::test(start_paused = true)]
async fn waiters_show_while_they_wait_and_are_counted_by_how_they_ended() {
    let metrics = Metrics::new();
    let builder = RateLimiter::builder().name("awaited").limit("10/s");
    let builder = builder.waiters_max(2).clock(Clock::tokio());
    let limiter = builder.metrics(&metrics).build().unwrap();
    let assert_shows = |waiters: u64, outcomes: [(&str, u64); 5]| {
        let text = metrics.encode();
        let series = r#"rate_limiter_waiters{policy="awaited"}"#;
        assert_eq!(value(&text, series), Some(waiters), "{text}");
        for (outcome, number) in outcomes {
            let labels = format!("outcome=\"{outcome}\",policy=\"awaited\"");
            let series = format!("rate_limiter_waits_total{{{labels}}}");
            assert_eq!(value(&text, &series), Some(number), "{series}");
        }
    };
    let outcomes = |granted, timed_out, dropped, too_many_waiters, refused| {
        [
            ("granted", granted),
            ("timed_out", timed_out),
            ("dropped", dropped),
            ("too_many_waiters", too_many_waiters),
            ("refused", refused),
        ]
    };
    limiter.acquire("a", 10).await.unwrap();
    assert_shows(0, outcomes(0, 0, 0, 0, 0));
    // Refused at once: the time is too short, and the capacity too small.
    let soon = Duration::from_millis(50);
    let refused = limiter.acquire_within("a", 1, soon).await;
    assert_eq!(refused, Err(AcquireError::TimedOut));
    limiter.acquire("a", 11).await.unwrap_err();
    assert_shows(0, outcomes(0, 1, 0, 0, 1));

    {
        let mut first = pin!(limiter.acquire("a", 4));
        let mut second = pin!(limiter.acquire_within("a", 1, Duration::from_millis(450)));
        let _pending = timeout(Duration::ZERO, first.as_mut()).await;
        let _pending = timeout(Duration::ZERO, second.as_mut()).await;
        limiter.acquire("a", 1).await.unwrap_err();
        assert_shows(2, outcomes(0, 1, 0, 1, 1));
        first.await.unwrap();
        assert_eq!(second.await, Err(AcquireError::TimedOut));
    }
    assert_shows(0, outcomes(1, 2, 0, 1, 1));

    timeout(soon, limiter.acquire("a", 4)).await.unwrap_err();
    assert_shows(0, outcomes(1, 2, 1, 1, 1));
    drop(limiter);
    assert_shows(0, outcomes(1, 2, 1, 1, 1));
}

#[test]
fn one_check_in_64_is_timed_in_memory() {
    let metrics = Metrics::new();
    let limiter = limiter("timed", "1000000/s", &metrics);
    let checks = move || {
        for _ in 0..640 {
            limiter.blocking().check("a");
        }
    };
    std::thread::spawn(checks).join().unwrap();
    let timed = r#"rate_limiter_latency_ms_count{storage_mode="memory"}"#;
    assert_eq!(value(&metrics.encode(), timed), Some(10));
}

#[tokio::test]
async fn an_outage_shows_in_errors_fallbacks_and_the_breaker() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let metrics = Metrics::new();
    let store = RedisStore::new(server.url()).unwrap();
    let builder = || RateLimiter::builder().limit("1000/h").metrics(&metrics);
    let open = builder()
        .name("open")
        .redis(&store, OnFailure::Allow)
        .build()
        .unwrap();
    let shut = builder()
        .name("shut")
        .redis(&store, OnFailure::Deny)
        .build()
        .unwrap();
    let in_time = patience("the store answers");
    while open.check("a").await.is_fallback() {
        in_time();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let [_, _, early] = decisions(&metrics, "open");
    shut.check("a").await;
    let requests = [open.request("a"), shut.request("a")];
    assert!(check_all(&requests).await.is_allowed());
    open.charge("a", 1).await.unwrap();
    let text = metrics.encode();
    assert!(value(&text, "rate_limiter_script_duration_ms_count").unwrap() >= 4);
    let timed = r#"rate_limiter_latency_ms_count{storage_mode="redis"}"#;
    // Every check, of which the one over two buckets is one, and no operation.
    let [allowed, denied, fallen] = decisions(&metrics, "open");
    assert_eq!([allowed, denied, fallen], [2, 0, early]);
    assert_eq!(decisions(&metrics, "shut"), [2, 0, 0]);
    assert_eq!(value(&text, timed), Some(early + 3));

    server.kill();
    let in_time = patience("the breaker opens");
    while !store.stats().is_open {
        in_time();
        assert!(open.check("a").await.is_allowed());
    }
    for _ in 0..10 {
        assert!(open.check("a").await.is_allowed());
        assert!(!shut.check("a").await.is_allowed());
        assert!(open.charge("a", 1).await.is_err());
    }
    let text = metrics.encode();
    assert_eq!(decisions(&metrics, "shut"), [2, 0, 10]);
    let refused = r#"rate_limiter_fallback_total{decision="deny",policy="shut"}"#;
    assert_eq!(value(&text, refused), Some(10));
    let passed = value(
        &text,
        r#"rate_limiter_fallback_total{decision="allow",policy="open"}"#,
    );
    assert_eq!(passed, Some(decisions(&metrics, "open")[2]));
    assert!(passed.unwrap() >= 10);
    assert_eq!(value(&text, "rate_limiter_breaker_open"), Some(1));
    assert_eq!(value(&text, "rate_limiter_breaker_opened_total"), Some(1));
    let errors = value(
        &text,
        r#"rate_limiter_backend_errors_total{reason="disconnected"}"#,
    );
    assert!(errors.unwrap() >= 1, "{text}");
    assert!(
        !text.contains("breaker_open\""),
        "a call that was not made is no error"
    );
}

#[tokio::test]
async fn tokens_out_on_lease_show_beside_their_bound() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let metrics = Metrics::new();
    let store = RedisStore::new(server.url()).unwrap();
    let limiter = RateLimiter::builder()
        .name("leased")
        .limit("100000/h")
        .redis(&store, OnFailure::Deny)
        .leases(Leases::new())
        .metrics(&metrics)
        .build()
        .unwrap();
    let read = |name: &str| {
        value(
            &metrics.encode(),
            &format!("rate_limiter_lease_{name}{{policy=\"leased\"}}"),
        )
        .unwrap()
    };
    let in_time = patience("a lease is held");
    while read("tokens") == 0 {
        in_time();
        limiter.check("a").await;
    }
    assert!(read("tokens") <= read("tokens_max"));
    assert_eq!(read("tokens_max"), 10_000);
    assert_eq!(read("keys"), 1);
    let [allowed, ..] = decisions(&metrics, "leased");
    assert!(
        allowed >= read("granted_total"),
        "grants from a lease are decisions, too"
    );
}
