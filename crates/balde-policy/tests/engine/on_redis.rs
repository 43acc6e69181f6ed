//! What differs with buckets in Redis: holds, conversion of buckets, callers without a runtime.

use std::time::Duration;

use balde::{Clock, ManualClock, RedisStore, Wait};
use balde_policy::{Engine, EngineBuilder, InFlight, Outcome, Subject};

use crate::fixture::{PROFILE, get, level, parsed, refusal};
use crate::redis_server::RedisServer;

async fn engine(
    server: &RedisServer,
    profile: &str,
    build: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Engine {
    let store = RedisStore::builder()
        .address(server.addr().to_string())
        .timeout(balde::REDIS_TIMEOUT_MAX);
    let builder = Engine::builder(parsed(profile))
        .redis(&store.build().unwrap())
        .clock(Clock::manual(&ManualClock::new()))
        .default_value("plan", "small");
    let engine = build(builder).build().unwrap();
    while engine.states(&Subject::new()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_survives_the_settlement_of_a_request_admitted_under_another_plan() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let engine = engine(&server, PROFILE, |builder| builder).await;
    engine.assign("plan", "ana", "large").await.unwrap();
    let ana = Subject::user("ana");
    engine.set_level("lookups", &ana, 2).await.unwrap();
    let ticket = engine.admit(&get("/items/1", "ana")).await.unwrap();
    let dropped = engine.admit(&get("/items/1", "ana")).await.unwrap();
    engine.assign("plan", "ana", "small").await.unwrap();
    assert_eq!(level(&engine, "lookups", "ana").await, 0);
    ticket.settle(Outcome::Status(404)).await;
    assert_eq!(level(&engine, "lookups", "ana").await, -4);
    drop(dropped);
    engine.settled().await;
    assert_eq!(level(&engine, "lookups", "ana").await, -5);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_profile_keeps_buckets_and_the_prices_of_requests_in_flight() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let engine = engine(&server, PROFILE, |builder| builder).await;
    let ticket = engine.admit(&get("/items/1", "ana")).await.unwrap();
    let changed = PROFILE
        .replace("1/s burst 20", "1/s burst 50")
        .replace("404 = 5", "404 = 9");
    engine.replace(parsed(&changed)).unwrap();
    ticket.settle(Outcome::Status(404)).await;
    assert_eq!(level(&engine, "lookups", "ana").await, 45);
    let ticket = engine.admit(&get("/items/1", "ana")).await.unwrap();
    ticket.settle(Outcome::Status(404)).await;
    assert_eq!(level(&engine, "lookups", "ana").await, 36);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_can_be_charged_after_the_response() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let profile = "profile = 'p'\n[[policy]]\nname = 'p'\nlimit = '2/min stepwise'\n\
                   [[policy]]\nname = 'free'\nlimit = '1/min'\nadmission = 0";
    let engine = engine(&server, profile, |builder| {
        builder.in_flight(InFlight::AfterResponse)
    })
    .await;
    let tickets = [
        engine.admit(&get("/", "")).await.unwrap(),
        engine.admit(&get("/", "")).await.unwrap(),
        engine.admit(&get("/", "")).await.unwrap(),
    ];
    assert_eq!(level(&engine, "p", "").await, 2);
    for ticket in tickets {
        ticket.settle(Outcome::Status(200)).await;
    }
    assert_eq!(level(&engine, "p", "").await, -1);
    assert_eq!(level(&engine, "free", "").await, -2);
    let refused = refusal(engine.admit(&get("/", "")).await);
    assert_eq!(refused.policy().name(), "p");
    assert_eq!(refused.wait(), Wait::Us(60_000_000));
}

#[test]
fn callers_without_a_runtime_are_admitted_and_settled() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = runtime.block_on(engine(&server, PROFILE, |builder| builder));
    let ticket = engine.admit_blocking(&get("/items/1", "ana")).unwrap();
    ticket.settle_blocking(Outcome::Status(404));
    drop(engine.admit_blocking(&get("/items/1", "ana")).unwrap());
    assert_eq!(runtime.block_on(level(&engine, "lookups", "ana")), 13);
}

const LEASED: &str = "profile = 'p'\n[variants]\nplan = { part = 'user', assigned = ['small', 'large'] }\n\
    [[policy]]\nname = 'users'\nscope = 'user'\nleases = '20%'\n\
    limits = { by = 'plan', small = '1/s burst 100', large = '1/s burst 400' }\n\
    [[policy]]\nname = 'overall'\nmatch = ['GET /rare']\nlimit = '1/s burst 150'\nleases = '10%'";

/// How many of `n` requests are admitted.
async fn admitted(engine: &Engine, path: &str, n: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..n {
        if let Ok(ticket) = engine.admit(&get(path, "ana")).await {
            ticket.settle(Outcome::Status(200)).await;
            admitted += 1;
        }
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_admit_exactly_the_limit_with_few_calls_and_follow_the_plan() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let engine = engine(&server, LEASED, |builder| {
        builder.clock(Clock::manual(&clock))
    })
    .await;
    assert_eq!(admitted(&engine, "/", 60).await, 60);
    let stats = engine.lease_stats("users").unwrap();
    assert!(
        stats.granted_total == 60 && stats.requests_total <= 30,
        "{stats:?}"
    );
    assert_eq!(stats.block_max, 80);

    // What is on lease goes back under the old limit, and the bucket moves to the new one.
    engine.assign("plan", "ana", "large").await.unwrap();
    assert_eq!(admitted(&engine, "/", 500).await, 340);
    let stats = engine.lease_stats("users").unwrap();
    assert!(stats.requests_total <= 60, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_second_policy_refuses_goes_back_to_the_lease() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let engine = engine(&server, LEASED, |builder| {
        let builder = builder.clock(Clock::manual(&clock));
        builder.default_value("plan", "large")
    })
    .await;
    assert_eq!(admitted(&engine, "/rare", 300).await, 150);
    let stats = engine.lease_stats("users").unwrap();
    // A refusal gives its token back to the lease, not to Redis.
    assert!(stats.returned_total < 100, "{stats:?}");
    engine.settled().await;
    assert_eq!(level(&engine, "users", "ana").await, 250);
    assert_eq!(engine.lease_stats("users").unwrap().tokens_out, 0);
}
