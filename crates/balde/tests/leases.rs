//! Leases over a real Redis: what they save, and what they keep.

#[path = "support/redis_server.rs"]
#[expect(dead_code, reason = "other tests do more to their servers")]
mod redis_server;

use std::time::{Duration, Instant};

use balde::{Leases, OnFailure, RateLimiter, Reason, RedisStore, Share};
use redis_server::RedisServer;
use tokio::task::JoinSet;

fn limiter(server: &RedisServer, limit: &str, leases: Option<Leases>) -> RateLimiter {
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    let mut builder = RateLimiter::builder()
        .name("leased")
        .limit(limit)
        .redis(&store, OnFailure::Deny);
    if let Some(leases) = leases {
        builder = builder.leases(leases);
    }
    builder.build().unwrap()
}

/// Calls of the script that the server has seen.
fn script_calls(server: &RedisServer) -> u64 {
    let mut connection = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .unwrap();
    let calls = |name: &str| -> u64 {
        let prefix = format!("cmdstat_{name}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.and_then(|rest| rest.split(',').next()?.parse().ok())
            .unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

/// Waits until the store answers, so that what follows is not about connecting.
async fn ready(limiter: &RateLimiter) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while limiter.peek("ready?").await.is_err() {
        assert!(Instant::now() < deadline, "the server did not come up");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_costs_redis_at_most_two_calls_in_a_hundred_checks() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let limiter = limiter(&server, "1000000/s burst 1000000", Some(Leases::new()));
    ready(&limiter).await;
    let before = script_calls(&server);
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut granted = 0_u64;
            for _ in 0..1_000 {
                granted += u64::from(limiter.check("hot").await.is_allowed());
                tokio::task::yield_now().await;
            }
            granted
        });
    }
    let granted: u64 = callers.join_all().await.into_iter().sum();
    let calls = script_calls(&server) - before;
    println!("{calls} calls of the script for {granted} checks");
    assert_eq!(granted, 64_000);
    assert!(
        calls * 1_000 <= 20 * granted,
        "{calls} calls for {granted} checks"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_refusals_reaches_redis_at_most_twenty_times_a_second() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let limiter = limiter(&server, "1/min burst 5", Some(Leases::new()));
    ready(&limiter).await;
    let before = script_calls(&server);
    let start = Instant::now();
    let mut granted = 0_u64;
    let mut refused = 0_u64;
    while start.elapsed() < Duration::from_secs(2) {
        for _ in 0..100 {
            let decision = limiter.check("flood").await;
            if decision.is_allowed() {
                granted += 1;
            } else {
                assert_eq!(decision.reason(), Reason::OverLimit);
                assert!(decision.retry_after().is_some());
                refused += 1;
            }
        }
    }
    let seconds = start.elapsed().as_secs() + 1;
    let calls = script_calls(&server) - before;
    println!(
        "{calls} calls of the script for {refused} refusals in {:?}",
        start.elapsed()
    );
    assert_eq!(granted, 5);
    assert!(calls <= 20 * seconds + 5, "{calls} calls in {seconds} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_leases_grant_no_more_than_there_is() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    // No refill to speak of: what is granted is what the bucket held.
    let limit = "1/day burst 1000";
    let nodes = [0, 1].map(|_| limiter(&server, limit, Some(Leases::new())));
    for node in &nodes {
        ready(node).await;
    }
    let mut callers = JoinSet::new();
    for node in &nodes {
        for _ in 0..8 {
            let node = node.clone();
            callers.spawn(async move {
                let mut granted = 0_u64;
                for _ in 0..200 {
                    granted += u64::from(node.check("shared").await.is_allowed());
                    let stats = node.lease_stats();
                    assert!(stats.tokens_out <= stats.block_max, "{stats:?}");
                    tokio::task::yield_now().await;
                }
                granted
            });
        }
    }
    let granted: u64 = callers.join_all().await.into_iter().sum();
    for node in &nodes {
        node.release_leases().await;
        assert_eq!(node.lease_stats().tokens_out, 0);
    }
    let left = nodes[0].peek("shared").await.unwrap().level();
    println!("{granted} granted, {left} left");
    assert!(granted <= 1_000);
    // Nothing was lost: what was not granted is back in the bucket.
    assert_eq!(i64::try_from(granted).unwrap() + left, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_of_leased_tokens_is_that_of_the_largest_tier() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    let limiter = RateLimiter::builder()
        .name("tiers")
        .limit("1000/day")
        .tier("large", "1000000/day")
        .redis(&store, OnFailure::Deny)
        .leases(Leases::new())
        .build()
        .unwrap();
    ready(&limiter).await;
    assert_eq!(limiter.lease_stats().block_max, 100_000);
    limiter.set_tier("busy", "large").await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    // More than a key without a tier may have.
    while limiter.lease_stats().tokens_out <= 100 {
        assert!(Instant::now() < deadline, "{:?}", limiter.lease_stats());
        assert!(limiter.check("busy").await.is_allowed());
    }
    let stats = limiter.lease_stats();
    assert!(stats.tokens_out <= stats.block_max, "{stats:?}");
    limiter.release_leases().await;
    limiter.set_tier_limit("large", "10/day").unwrap();
    assert_eq!(limiter.lease_stats().block_max, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_spent_goes_back_by_itself() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let leases = Leases::new().share(Share::percent(50));
    let limiter = limiter(&server, "1/day burst 1000", Some(leases));
    ready(&limiter).await;
    for _ in 0..100 {
        assert!(limiter.check("burst").await.is_allowed());
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while limiter.peek("burst").await.unwrap().level() != 900 {
        assert!(Instant::now() < deadline, "{:?}", limiter.lease_stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(limiter.lease_stats().tokens_out, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credit_from_elsewhere_is_noticed() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let leased = limiter(&server, "1/day burst 10", Some(Leases::new()));
    let other = limiter(&server, "1/day burst 10", None);
    ready(&leased).await;
    ready(&other).await;
    assert!(leased.check_n("key", 10).await.is_allowed());
    assert!(!leased.check("key").await.is_allowed());
    other.credit("key", 10).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let decision = leased.check("key").await;
        if decision.is_allowed() {
            break;
        }
        assert!(Instant::now() < deadline, "{decision:?}");
        // As far as this process knows, the next token comes tomorrow.
        assert!(decision.retry_after().unwrap() > Duration::from_secs(3_600));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Its own credits it notices at once.
    while leased.check("key").await.is_allowed() {}
    leased.credit("key", 3).await.unwrap();
    assert!(leased.check("key").await.is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_tokens_are_good_while_redis_is_away() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let limiter = limiter(&server, "1/day burst 1000", Some(Leases::new()));
    ready(&limiter).await;
    while limiter.lease_stats().tokens_out < 20 {
        assert!(limiter.check("key").await.is_allowed());
    }
    server.kill();
    assert!(limiter.peek("key").await.is_err());
    let held = limiter.lease_stats().tokens_out;
    let mut granted = 0;
    for _ in 0..held + 20 {
        let decision = limiter.check("key").await;
        assert_eq!(decision.is_allowed(), !decision.is_fallback());
        granted += u64::from(decision.is_allowed());
    }
    assert_eq!(granted, held);
}
