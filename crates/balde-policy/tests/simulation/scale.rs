//! Many nodes with leases over one simulated Redis: how many calls it gets, and how exact the limit is.
//!
//! `BALDE_NODES` sets the number of nodes; docs/scaling.md has the figures for 1,000.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde::{Clock, Leases, Limit, OnFailure, RateLimiter, RedisStore, Share};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::store::Store;

const KEYS: u64 = 10;
/// Checks of each node, and what the limit allows of them, in a second.
const OFFERED: u32 = 1_000;
const ALLOWED: u64 = 600;
const SPAN: Duration = Duration::from_secs(2);
const NODES_DEFAULT: u64 = 20;
/// With more nodes, every check as a call takes too long.
const NODES_WITHOUT_LEASES_MAX: u64 = 100;

struct Outcome {
    checks: u64,
    granted: u64,
    calls: u64,
    tokens_out_max: u64,
    block_max: u64,
    /// By the server's clock, which is not exact.
    elapsed_us: u64,
}

async fn run(folder: &Path, nodes: u64, lease: Option<Share>, fails_over: bool) -> Outcome {
    let store = Store::new(folder, Rng::with_seed(7));
    let rate = ALLOWED * nodes / KEYS;
    let limit: Limit = format!("{rate}/s burst {rate}").parse().expect("a limit");
    let (granted, checks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (mut clients, mut servers, mut limiters) = (JoinSet::new(), Vec::new(), Vec::new());
    let begun = Instant::now() + Duration::from_millis(10);
    for node in 0..nodes {
        let (address, server) = store.listen(usize::try_from(node).expect("few nodes"));
        servers.push(server);
        let redis = RedisStore::builder().address(address).connections(1);
        let redis = redis.timeout(Duration::from_millis(100)).build();
        let builder = RateLimiter::builder()
            .name("shared")
            .limit(limit)
            .clock(Clock::tokio())
            .redis(&redis.expect("a store"), OnFailure::Deny);
        let builder = match lease {
            Some(share) => builder.leases(Leases::new().share(share)),
            None => builder,
        };
        let limiter = builder.build().expect("a limiter");
        limiters.push(limiter.clone());
        let (granted, checks) = (Arc::clone(&granted), Arc::clone(&checks));
        clients.spawn(async move {
            let mut random = Rng::with_seed(node);
            let mut at = begun;
            while at < begun + SPAN {
                let gap = -(1.0 - random.f64()).ln() / f64::from(OFFERED);
                at += Duration::from_secs_f64(gap);
                sleep_until(at).await;
                let key = format!("k{}", random.u64(..KEYS));
                let decision = limiter.check(&key).await;
                checks.fetch_add(1, Ordering::Relaxed);
                let is_granted = decision.is_allowed() && !decision.is_fallback();
                granted.fetch_add(u64::from(is_granted), Ordering::Relaxed);
            }
        });
    }
    let mut tokens_out_max = 0;
    for tick in 0..6 {
        sleep(SPAN / 6).await;
        let out = limiters
            .iter()
            .map(|limiter| limiter.lease_stats().tokens_out);
        tokens_out_max = tokens_out_max.max(out.sum());
        store.replicate();
        if fails_over && tick == 2 {
            store.fail_over();
            store.break_connections();
        }
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client that ends well");
    }
    drop(servers);
    Outcome {
        checks: checks.load(Ordering::Relaxed),
        granted: granted.load(Ordering::Relaxed),
        calls: store.calls(),
        tokens_out_max,
        block_max: limiters[0].lease_stats().block_max,
        elapsed_us: store.elapsed_us(),
    }
}

#[test]
fn many_nodes_with_leases_call_the_store_less_and_keep_the_limit() {
    let nodes = crate::number("BALDE_NODES").unwrap_or(NODES_DEFAULT);
    println!(
        "| {nodes} nodes | checks/s | calls/s | calls per check | granted, of what one bucket allows | tokens on lease at most | bound |"
    );
    let rows = [(0, false), (1, false), (10, false), (10, true)];
    for (percent, fails_over) in rows {
        let lease = (percent > 0).then(|| Share::percent(percent));
        if lease.is_none() && nodes > NODES_WITHOUT_LEASES_MAX {
            continue;
        }
        let runtime = crate::simulated_runtime();
        let folder = tempfile::TempDir::new().expect("a folder");
        let outcome = runtime.block_on(run(folder.path(), nodes, lease, fails_over));
        let seconds = SPAN.as_secs();
        // One capacity, and what is refilled: buckets begin full.
        let rate = ALLOWED * nodes;
        let allowed = rate + rate * outcome.elapsed_us / 1_000_000;
        let most = outcome.checks.min(allowed);
        let share = match percent {
            0 => "no leases".to_owned(),
            _ => format!("leases of {percent} %"),
        };
        println!(
            "| {share}{} | {} | {} | {}.{:02} | {}.{} % | {} | {} |",
            if fails_over { ", a failover" } else { "" },
            outcome.checks / seconds,
            outcome.calls / seconds,
            outcome.calls / outcome.checks,
            outcome.calls * 100 / outcome.checks % 100,
            outcome.granted * 100 / most,
            outcome.granted * 1_000 / most % 10,
            outcome.tokens_out_max,
            outcome.block_max * KEYS * nodes,
        );
        assert!(
            fails_over || outcome.granted <= allowed,
            "{}",
            outcome.granted
        );
        assert!(outcome.tokens_out_max <= outcome.block_max * KEYS * nodes);
        assert!(
            outcome.granted * 10 >= most * 9,
            "{} of {most}",
            outcome.granted
        );
    }
}
