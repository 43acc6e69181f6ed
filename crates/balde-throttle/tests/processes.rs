//! Throttlers that share one Redis: four processes keep a common rate, and share the health of
//! partitions.
//!
//! Each worker process is this test binary with an environment variable set. They run for
//! `BALDE_SOAK_SECONDS`, 6 by default.

#[expect(dead_code, reason = "these tests do not freeze the server")]
#[path = "../../balde/tests/support/redis_server.rs"]
mod redis_server;
#[path = "../../balde/tests/support/wall_clock.rs"]
mod wall_clock;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use balde::{OnFailure, RedisStore, Share};
use balde_throttle::{Circuit, Degradation, Outcome, Refusal, Throttler};
use redis_server::RedisServer;
use wall_clock::{micros, now_us};

const PROCESSES: usize = 4;
const TASKS: usize = 12;
const RATE: u64 = 2_000;
const BURST: u64 = RATE / 10;
const PARTITIONS: [&str; 3] = ["north", "south", "west"];
/// Workers begin this long after they were started, so that all of them are ready.
const START_AFTER: Duration = Duration::from_millis(1_500);

const WORKER: &str = "BALDE_TEST_THROTTLE_WORKER";

fn throttler(store: &RedisStore) -> Throttler {
    Throttler::builder()
        .name("import")
        .rate(RATE)
        .partition_rate(RATE)
        .redis(store, OnFailure::Deny)
        .build()
        .expect("a throttler")
}

fn store(url: &str) -> RedisStore {
    RedisStore::builder()
        .address(url)
        .timeout(balde::REDIS_TIMEOUT_MAX)
        .build()
        .expect("a store")
}

#[test]
fn four_processes_stay_within_the_common_rate_and_use_it() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let start_us = now_us() + micros(START_AFTER);
    let path = |n: usize| dir.path().join(n.to_string());
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|n| start_worker(&server.url(), &path(n), start_us))
        .collect();
    for worker in &mut workers {
        let within = START_AFTER + runs_for() + Duration::from_secs(30);
        assert!(ends_well(worker, within), "a worker");
    }
    let outcomes: Vec<_> = (0..PROCESSES).map(|n| Outcomes::read(&path(n))).collect();
    let granted: u64 = outcomes.iter().map(|one| one.granted).sum();
    let first_us = outcomes.iter().map(|one| one.first_us).min().unwrap_or(0);
    let last_us = outcomes.iter().map(|one| one.last_us).max().unwrap_or(0);
    // A begun token counts as one. The buckets start empty, at the first request.
    let refill = (last_us - first_us) * RATE / 1_000_000 + 1;
    let by_process: Vec<_> = outcomes.iter().map(|one| one.granted).collect();
    println!(
        "{granted} granted of {refill} refilled in {} ms, burst {BURST}, by process {by_process:?}",
        (last_us - first_us) / 1_000
    );
    assert!(granted <= refill + BURST, "{granted} of {refill}");
    assert!(granted * 100 >= refill * 95, "{granted} of {refill}");
    assert!(by_process.iter().all(|granted| *granted > 0));
}

/// Does nothing, except in a process that the test above has started.
#[test]
fn worker() {
    let Ok(url) = env::var(WORKER) else {
        return;
    };
    let variable = |name: &str| env::var(name).expect("set by the test that started this");
    let start_us: u64 = variable("BALDE_TEST_START_US").parse().expect("a moment");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        let throttler = throttler(&store(&url));
        let wait_us = start_us.saturating_sub(now_us());
        tokio::time::sleep(Duration::from_micros(wait_us)).await;
        let first_us = now_us();
        let end = Instant::now() + runs_for();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(work(throttler.clone(), task, end)))
            .collect();
        let mut granted = 0;
        for task in tasks {
            granted += task.await.expect("no task panics");
        }
        Outcomes {
            first_us,
            last_us: now_us(),
            granted,
        }
    });
    outcome.write(Path::new(&variable("BALDE_TEST_OUTCOME")));
}

async fn work(throttler: Throttler, task: usize, end: Instant) -> u64 {
    // Some take one token at a time, some many.
    let n = [1, 1, 5, 20][task % 4];
    let mut granted = 0;
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        let partition = PARTITIONS[task % PARTITIONS.len()];
        match throttler.acquire_within(partition, n, left).await {
            Ok(()) => granted += n,
            Err(Refusal::Deadline) => break,
            Err(refusal) => panic!("{refusal}"),
        }
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_one_process_degrades_the_other_and_a_circuit_opens_for_all() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let make = || {
        Throttler::builder()
            .name("import")
            .rate(100_000)
            .partition_rate(2_000)
            .degradation(
                Degradation::strict()
                    .reset(Duration::from_secs(2))
                    .recovery(Duration::from_millis(100))
                    .step(Share::percent(50))
                    .probes(1),
            )
            .redis(&store(&server.url()), OnFailure::Deny)
            .build()
            .expect("a throttler")
    };
    let (here, there) = (make(), make());
    let both = [&here, &there];
    for throttler in both {
        throttler.acquire("store", 1).await.expect("a token");
    }
    let pace = |throttler: &Throttler| throttler.stats()[0].pace().to_string();
    let all_at = async |expected: &str| {
        until(expected, || both.iter().all(|one| pace(one) == expected)).await;
    };
    here.report("store", Outcome::Error);
    all_at("1800/s burst 180").await;
    // Errors in both count as two.
    here.report("store", Outcome::Error);
    there.report("store", Outcome::Error);
    all_at("1458/s burst 145").await;

    while here.stats()[0].circuit() == Circuit::Closed {
        here.report("store", Outcome::Error);
    }
    until("the circuit is open in the other process too", || {
        let refusal = there.try_acquire("store", 1);
        matches!(refusal, Err(Refusal::CircuitOpen { .. }))
    })
    .await;

    // A successful probe closes it, and successes restore the rate, in both.
    until("both are healthy", || {
        for throttler in both {
            throttler.report("store", Outcome::Success);
            let _probe = throttler.try_acquire("store", 0);
        }
        both.iter().all(|one| !one.stats()[0].is_degraded())
    })
    .await;
    all_at("2000/s burst 200").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_unavailable_the_failure_policy_decides() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let make = |on_failure| {
        Throttler::builder()
            .name("unavailable")
            .rate(1_000)
            .partition_rate(1_000)
            .redis(&store(&server.url()), on_failure)
            .build()
            .expect("a throttler")
    };
    let (denies, allows) = (make(OnFailure::Deny), make(OnFailure::Allow));
    let share = Share::percent(50);
    let local = make(OnFailure::Local { share });
    for throttler in [&denies, &allows, &local] {
        throttler.acquire("store", 1).await.expect("a token");
    }
    server.kill();
    let short = Duration::from_millis(300);
    assert_eq!(
        denies.acquire_within("store", 50, short).await,
        Err(Refusal::Deadline),
        "it waits for the store"
    );
    let long = Duration::from_secs(10);
    assert_eq!(allows.acquire_within("store", 50, long).await, Ok(()));
    assert_eq!(local.acquire_within("store", 50, long).await, Ok(()));
    server.restart();
    assert_eq!(denies.acquire_within("store", 50, long).await, Ok(()));
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn runs_for() -> Duration {
    let seconds = env::var("BALDE_SOAK_SECONDS").map_or(6, |text| {
        text.parse().expect("BALDE_SOAK_SECONDS is a number")
    });
    Duration::from_secs(seconds)
}

fn start_worker(url: &str, outcome: &Path, start_us: u64) -> Child {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", "worker"]).stdout(Stdio::null());
    command.env(WORKER, url);
    command.env("BALDE_TEST_OUTCOME", outcome);
    command.env("BALDE_TEST_START_US", start_us.to_string());
    command.spawn().expect("this program can be started again")
}

fn ends_well(worker: &mut Child, within: Duration) -> bool {
    let started = Instant::now();
    while started.elapsed() < within {
        if let Some(status) = worker.try_wait().expect("a child") {
            return status.success();
        }
        thread::sleep(Duration::from_millis(10));
    }
    worker.kill().expect("a child");
    worker.wait().expect("a child");
    false
}

/// What one worker measured.
struct Outcomes {
    first_us: u64,
    last_us: u64,
    granted: u64,
}

impl Outcomes {
    fn write(&self, path: &Path) {
        let text = format!("{} {} {}", self.first_us, self.last_us, self.granted);
        fs::write(path, text).expect("written");
    }

    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a worker has written it");
        let mut numbers = text.split(' ').map(|one| one.parse().expect("a number"));
        let mut next = || numbers.next().expect("enough of them");
        Self {
            first_us: next(),
            last_us: next(),
            granted: next(),
        }
    }
}
