//! A seeded simulation: nodes with the real SDK and engine, over a simulated Redis, network and time.
//!
//! The nodes run the code that programs run, down to the bytes that the redis crate writes: limiters with and
//! without leases, holds, an engine with tickets. Time is tokio's paused clock, so a world of many seconds takes
//! milliseconds, and what happens follows from its seed. Clients arrive by a Poisson process and in bursts;
//! requests and replies are late or lost; connections break; the server restarts, forgets the script, or fails
//! over to a replica that lacks the last writes and has another clock; nodes have clocks that drift and step, and
//! crash with holds and leases out; limits change, at each node at another time.
//!
//! `BALDE_SEED` repeats one world, `BALDE_SEEDS` sets their number.

#[path = "../../../balde/tests/support/redis_oracle.rs"]
#[expect(dead_code, reason = "other tests plant buckets")]
mod redis_oracle;
mod scale;
mod store;
mod world;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use self::world::{Summary, World};

const SEEDS_DEFAULT: u64 = 1_000;
const THREADS: usize = 4;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// A runtime whose time is simulated.
fn simulated_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

fn run(seed: u64) -> Summary {
    let runtime = simulated_runtime();
    let folder = tempfile::TempDir::new().expect("a folder");
    runtime.block_on(async { World::new(seed, folder.path()).run().await })
}

#[test]
fn every_law_holds_in_every_simulated_world() {
    let (first, count) = match number("BALDE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("BALDE_SEEDS").unwrap_or(SEEDS_DEFAULT)),
    };
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let total = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut total = Summary::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + count {
                            return total;
                        }
                        let told = thread::Builder::new().spawn_scoped(scope, move || run(seed));
                        let ended = told.expect("a thread").join();
                        let summary = ended.ok();
                        total.add(
                            &summary
                                .unwrap_or_else(|| panic!("a law is broken: BALDE_SEED={seed}")),
                        );
                    }
                })
            })
            .collect();
        let mut total = Summary::default();
        for thread in threads {
            match thread.join() {
                Ok(summary) => total.add(&summary),
                Err(error) => std::panic::resume_unwind(error),
            }
        }
        total
    });
    println!("{count} worlds in {:?}: {total:?}", begun.elapsed());
    if count >= SEEDS_DEFAULT {
        // Worlds in which nothing happens would show nothing.
        for (what, happened) in total.named() {
            assert!(
                happened >= count / 10,
                "{what}: {happened} in {count} worlds"
            );
        }
    }
}

/// With faults, the jitter of the libraries' backoff is drawn anew: the faults are the same, and recovery takes a
/// few milliseconds more or less.
#[test]
fn a_world_without_faults_repeats_itself_from_its_seed() {
    for seed in [0, 5, 10] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
