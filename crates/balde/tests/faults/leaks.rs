//! A hundred deaths of the server under one store, and nothing left behind.

use std::fs;
use std::time::Duration;

use balde::{OnFailure, RateLimiter};
use tokio::runtime::Handle;

use super::redis_server::RedisServer;
use super::{Mode, limiter, store, story};

const ROUNDS: usize = 100;
/// Caches and lazily made things are there after so many.
const ROUNDS_TO_SETTLE: usize = 5;
const TASKS_SLACK: usize = 2;
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn a_hundred_deaths_leave_no_task_and_no_connection_behind() {
    rounds(Mode::Plain);
}

#[test]
fn a_hundred_deaths_leave_no_task_and_no_connection_behind_on_leases() {
    rounds(Mode::Leased);
}

fn rounds(mode: Mode) {
    story(async {
        let Some(mut server) = RedisServer::start() else {
            return;
        };
        let store = store(server.url());
        let limiter = limiter(&store, mode, OnFailure::Deny);
        let mut settled = None;
        for round in 0..ROUNDS {
            server.kill();
            // Some calls meet the dead server, and some the breaker.
            ask_at_once(&limiter, 8).await;
            server.restart();
            // Looking is never done on lease.
            let is_served = async || limiter.peek("again").await.is_ok();
            super::until("decisions from Redis", SETTLED_WITHIN, is_served).await;
            ask_at_once(&limiter, 8).await;
            if round == ROUNDS_TO_SETTLE {
                settled = Some(quiet(&server, &limiter).await);
            }
        }
        let (before, after) = (
            settled.expect("enough rounds"),
            quiet(&server, &limiter).await,
        );
        println!(
            "leaks: after {ROUNDS_TO_SETTLE} rounds {before:?}, after {ROUNDS} rounds {after:?}; {:?}",
            store.stats()
        );
        // A leak would be one task for each round. How many tasks two connections have differs by one
        // or two, as a connection that the server closed is noticed sooner or later.
        assert!(after.tasks <= before.tasks + TASKS_SLACK, "tasks");
        assert!(after.files <= before.files, "file descriptors");
        assert!(after.clients <= before.clients, "connections at the server");
    });
}

async fn ask_at_once(limiter: &RateLimiter, callers: usize) {
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("at once").await })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    tasks: usize,
    files: usize,
    clients: usize,
}

/// What is held once nothing more is let go of, and every connection is back.
async fn quiet(server: &RedisServer, limiter: &RateLimiter) -> Held {
    let mut last = held(server);
    let mut same = 0;
    let is_quiet = async || {
        // A check may be answered by a lease, and then a connection that is not back yet stays away.
        let _ = limiter.peek("quietly").await;
        let now = held(server);
        // The task that returns idle leases ends with the last of them.
        let is_same = now == last && limiter.lease_stats().keys == 0;
        same = if is_same { same + 1 } else { 0 };
        last = now;
        same >= 50
    };
    super::until("quiet", SETTLED_WITHIN, is_quiet).await;
    last
}

fn held(server: &RedisServer) -> Held {
    let client = redis::Client::open(server.url()).expect("an address");
    let mut admin = client.get_connection().expect("a connection");
    let mut list = redis::cmd("CLIENT");
    let list: String = list.arg("LIST").query(&mut admin).expect("a list");
    Held {
        tasks: Handle::current().metrics().num_alive_tasks(),
        files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        clients: list.lines().count(),
    }
}
