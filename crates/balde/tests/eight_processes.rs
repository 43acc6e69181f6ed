//! Eight processes share one bucket while Redis is killed and restarted under them, and together
//! they are granted no more than the bucket ever had.
//!
//! The bound: capacity, refill over the true time, and what was given back; after a restart that
//! lost its data one capacity more, because a bucket that nobody remembers is full. That much of it
//! was granted (nine tenths) is checked, too: a bucket that gives nothing keeps every bound.
//!
//! Each process is this test again, told by its environment that it is a worker. They run for
//! `BALDE_SOAK_SECONDS`, 6 unless told otherwise; `scripts/soak-redis.sh` says 20.
//!
//! One and two processes under small bursts: leased and plain checks are granted the same. Counted
//! for half a second here, without a judgement of the machine's speed; for `BALDE_LEASE_SECONDS` and
//! all bursts, and judged to 5 %, in `scripts/leases-redis.sh`.

#[expect(dead_code, reason = "nothing is frozen here")]
#[path = "support/redis_server.rs"]
mod redis_server;
#[path = "support/wall_clock.rs"]
mod wall_clock;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use balde::{Leases, OnFailure, RateLimiter, RedisStore};
use parking_lot::Mutex;
use redis_server::RedisServer;
use wall_clock::{micros, now_us};

const PROCESSES: usize = 8;
const CALLERS: usize = 4;
/// Between two calls of one caller: eight processes want much more than the bucket has.
const PAUSE: Duration = Duration::from_millis(5);
const RATE: u64 = 500;
const CAPACITY: u64 = 1_000;
/// Tokens given back at a time by each worker, and how often.
const CREDIT: u64 = 5;
const CREDIT_EVERY: Duration = Duration::from_millis(400);
/// Shorter than the bucket takes to fill, so that nothing it could have had is lost.
const OUTAGE: Duration = Duration::from_millis(500);
/// Workers start late enough for all of them to be there.
const START_AFTER: Duration = Duration::from_millis(1_000);

const WORKER: &str = "BALDE_TEST_WORKER";
static TURN: Mutex<()> = Mutex::new(());

/// How the workers ask.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// One call per decision.
    Plain,
    /// Blocks of tokens, taken ahead.
    Leased,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Plain, Self::Leased];

    fn limiter(self, store: &RedisStore, limit: &str) -> RateLimiter {
        let builder = RateLimiter::builder()
            .name("eight")
            .limit(limit)
            .redis(store, OnFailure::Deny);
        let builder = match self {
            Self::Plain => builder,
            Self::Leased => builder.leases(Leases::new()),
        };
        builder.build().expect("a limiter")
    }

    fn from_name(name: &str) -> Self {
        let is_meant = |mode: &Self| format!("{mode:?}") == name;
        Self::ALL.into_iter().find(is_meant).expect("a mode")
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Restart {
    KeepsAll,
    LosesAll,
}

#[test]
fn a_restart_that_keeps_its_data_adds_nothing() {
    for mode in Mode::ALL {
        share(mode, Restart::KeepsAll);
    }
}

#[test]
fn a_restart_that_loses_its_data_adds_one_capacity() {
    for mode in Mode::ALL {
        share(mode, Restart::LosesAll);
    }
}

fn share(mode: Mode, restart: Restart) {
    let _turn = TURN.lock();
    let args: &[&str] = match restart {
        Restart::KeepsAll => &["--appendonly", "yes", "--appendfsync", "no"],
        Restart::LosesAll => &[],
    };
    let Some(mut server) = RedisServer::start_with(args) else {
        return;
    };
    let runs = runs_for();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let start_us = now_us() + micros(START_AFTER);
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|n| {
            let outcome = dir.path().join(n.to_string());
            start_worker("worker", mode, &server.url(), &outcome, start_us, &[])
        })
        .collect();
    thread::sleep(START_AFTER + runs / 2);
    server.kill();
    thread::sleep(OUTAGE);
    server.restart();
    for worker in &mut workers {
        assert!(
            ends_well(worker, runs + Duration::from_secs(20)),
            "a worker"
        );
    }
    let outcomes: Vec<_> = (0..PROCESSES)
        .map(|n| Outcome::read(&dir.path().join(n.to_string())))
        .collect();
    judge(mode, restart, &outcomes);
}

fn judge(mode: Mode, restart: Restart, outcomes: &[Outcome]) {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let first_us = outcomes.iter().map(|one| one.first_us).min();
    let last_us = outcomes.iter().map(|one| one.last_us).max();
    let elapsed_us = last_us.unwrap_or(0) - first_us.unwrap_or(0);
    // A begun token counts as one.
    let refill = elapsed_us * RATE / 1_000_000 + 1;
    let credits = sum(|one| one.credits);
    let granted = sum(|one| one.granted);
    let losses = u64::from(restart == Restart::LosesAll);
    let available = CAPACITY + refill + credits;
    let bound = available + losses * CAPACITY;
    println!(
        "{mode:?}, restart {restart:?}: {granted} granted of at most {bound} in {:.2} s \
         ({CAPACITY} + {refill} refilled + {credits} given back + {losses} losses of {CAPACITY}), \
         {} calls, {} of them fallbacks, by process {:?}",
        Duration::from_micros(elapsed_us).as_secs_f64(),
        sum(|one| one.calls),
        sum(|one| one.fallbacks),
        outcomes.iter().map(|one| one.granted).collect::<Vec<_>>(),
    );
    assert!(granted <= bound, "{granted} granted of {bound}");
    assert!(granted * 10 >= available * 9, "{granted} of {available}");
    assert!(outcomes.iter().all(|one| one.granted > 0), "all had some");
}

fn runs_for() -> Duration {
    let seconds = env::var("BALDE_SOAK_SECONDS").map_or(6, |text| {
        text.parse().expect("BALDE_SOAK_SECONDS is a number")
    });
    Duration::from_secs(seconds)
}

fn start_worker(
    test: &str,
    mode: Mode,
    url: &str,
    outcome: &Path,
    start_us: u64,
    more: &[(&str, String)],
) -> Child {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args(["--exact", test]).stdout(Stdio::null());
    command.envs(more.iter().map(|(name, value)| (name, value)));
    command.env(WORKER, format!("{mode:?}"));
    command.env("BALDE_TEST_URL", url);
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

/// Only what [`share`] starts does anything here.
#[test]
fn worker() {
    let Ok(mode) = env::var(WORKER) else {
        return;
    };
    let told = |name: &str| env::var(name).expect("told by the one who started this");
    let start_us: u64 = told("BALDE_TEST_START_US").parse().expect("a moment");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        let store = RedisStore::builder()
            .address(told("BALDE_TEST_URL"))
            .timeout(balde::REDIS_TIMEOUT_MAX)
            .build()
            .expect("a store");
        let limit = format!("{RATE}/s burst {CAPACITY}");
        work(&Mode::from_name(&mode).limiter(&store, &limit), start_us).await
    });
    outcome.write(Path::new(&told("BALDE_TEST_OUTCOME")));
}

async fn work(limiter: &RateLimiter, start_us: u64) -> Outcome {
    let wait_us = start_us.saturating_sub(now_us());
    tokio::time::sleep(Duration::from_micros(wait_us)).await;
    let end = Instant::now() + runs_for();
    let mut outcome = Outcome {
        first_us: now_us(),
        ..Outcome::default()
    };
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(call(limiter.clone(), "shared".to_owned(), PAUSE, end)))
        .collect();
    while Instant::now() < end {
        // It counts even where nobody knows whether it happened.
        outcome.credits += CREDIT;
        let _unknown = limiter.credit("shared", CREDIT).await;
        tokio::time::sleep(CREDIT_EVERY).await;
    }
    for caller in callers {
        outcome.add(caller.await.expect("no caller panics"));
    }
    outcome.last_us = now_us();
    outcome
}

async fn call(limiter: RateLimiter, key: String, pause: Duration, end: Instant) -> (u64, u64, u64) {
    let (mut calls, mut granted, mut fallbacks) = (0, 0, 0);
    while Instant::now() < end {
        let decision = limiter.check(&key).await;
        calls += 1;
        granted += u64::from(decision.is_allowed());
        fallbacks += u64::from(decision.is_fallback());
        tokio::time::sleep(pause).await;
    }
    (calls, granted, fallbacks)
}

const FLOOD_RATE: u64 = 1_000;
const FLOOD_CALLERS: usize = 16;
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

#[test]
fn leased_and_plain_are_granted_the_same_under_small_bursts() {
    let _turn = TURN.lock();
    let campaign_s = env::var("BALDE_LEASE_SECONDS").ok().map(|text| {
        let seconds: u64 = text.parse().expect("BALDE_LEASE_SECONDS is a number");
        seconds
    });
    let (bursts, counts): (&[u64], &[usize]) = match campaign_s {
        Some(_) => (&[5, 10, 20, 50, 100], &[1, 2]),
        None => (&[5, 100], &[2]),
    };
    let runs = campaign_s.map_or(Duration::from_millis(500), Duration::from_secs);
    let Some(server) = RedisServer::start() else {
        return;
    };
    for burst in bursts {
        for processes in counts {
            let [plain, leased] =
                Mode::ALL.map(|mode| flood(mode, &server, *burst, *processes, runs));
            let percent = leased * 1_000 / plain.max(1);
            println!(
                "{FLOOD_RATE}/s burst {burst}, {processes} processes: granted of what there was: \
                 plain {}.{} %, leased {}.{} %; leased / plain {}.{} %",
                plain / 10,
                plain % 10,
                leased / 10,
                leased % 10,
                percent / 10,
                percent % 10,
            );
            // A machine with other things to do may keep either from running.
            let least = if campaign_s.is_some() { 950 } else { 500 };
            assert!(percent >= least, "burst {burst}, {processes} processes");
        }
    }
}

/// Returns how much of what the bucket had was granted, in thousandths. It is never more than all.
fn flood(mode: Mode, server: &RedisServer, burst: u64, processes: usize, runs: Duration) -> u64 {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let start_us = now_us() + micros(START_AFTER / 2);
    let outcome = |n: usize| dir.path().join(n.to_string());
    let told = [
        ("BALDE_TEST_BURST", burst.to_string()),
        // A bucket of its own for each run.
        ("BALDE_TEST_KEY", start_us.to_string()),
        ("BALDE_TEST_RUNS_US", micros(runs).to_string()),
    ];
    let mut workers: Vec<_> = (0..processes)
        .map(|n| start_worker("flooder", mode, &server.url(), &outcome(n), start_us, &told))
        .collect();
    for worker in &mut workers {
        assert!(
            ends_well(worker, runs + Duration::from_secs(20)),
            "a worker"
        );
    }
    let outcomes: Vec<_> = (0..processes).map(|n| Outcome::read(&outcome(n))).collect();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let first_us = outcomes.iter().map(|one| one.first_us).min().unwrap_or(0);
    let last_us = outcomes.iter().map(|one| one.last_us).max().unwrap_or(0);
    let granted = sum(|one| one.granted);
    let refill = (last_us - first_us) * FLOOD_RATE / 1_000_000 + 1;
    let bound = burst + refill;
    println!(
        "  {mode:?}, burst {burst}, {processes} processes: {granted} granted of {bound}, {} calls, \
         {} fallbacks",
        sum(|one| one.calls),
        sum(|one| one.fallbacks),
    );
    assert!(granted <= bound, "{mode:?}: {granted} granted of {bound}");
    granted * 1_000 / bound
}

/// Only what [`flood`] starts does anything here.
#[test]
fn flooder() {
    let Ok(mode) = env::var(WORKER) else {
        return;
    };
    let told = |name: &str| env::var(name).expect("told by the one who started this");
    let number = |name: &str| told(name).parse::<u64>().expect("a number");
    let limit = format!("{FLOOD_RATE}/s burst {}", number("BALDE_TEST_BURST"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        let store = RedisStore::builder()
            .address(told("BALDE_TEST_URL"))
            .timeout(balde::REDIS_TIMEOUT_MAX)
            .build()
            .expect("a store");
        let limiter = Mode::from_name(&mode).limiter(&store, &limit);
        let wait_us = number("BALDE_TEST_START_US").saturating_sub(now_us());
        tokio::time::sleep(Duration::from_micros(wait_us)).await;
        let mut outcome = Outcome {
            first_us: now_us(),
            ..Outcome::default()
        };
        let end = Instant::now() + Duration::from_micros(number("BALDE_TEST_RUNS_US"));
        let key = format!("{mode} {}", told("BALDE_TEST_KEY"));
        let callers: Vec<_> = (0..FLOOD_CALLERS)
            .map(|_| tokio::spawn(call(limiter.clone(), key.clone(), FLOOD_PAUSE, end)))
            .collect();
        for caller in callers {
            outcome.add(caller.await.expect("no caller panics"));
        }
        outcome.last_us = now_us();
        outcome
    });
    outcome.write(Path::new(&told("BALDE_TEST_OUTCOME")));
}

/// What one worker saw.
#[derive(Debug, Default)]
struct Outcome {
    first_us: u64,
    last_us: u64,
    calls: u64,
    granted: u64,
    fallbacks: u64,
    credits: u64,
}

impl Outcome {
    /// Adds the calls, grants and fallbacks of one caller.
    fn add(&mut self, (calls, granted, fallbacks): (u64, u64, u64)) {
        self.calls += calls;
        self.granted += granted;
        self.fallbacks += fallbacks;
    }

    fn write(&self, path: &Path) {
        let numbers = [
            self.first_us,
            self.last_us,
            self.calls,
            self.granted,
            self.fallbacks,
            self.credits,
        ];
        let text: Vec<_> = numbers.iter().map(u64::to_string).collect();
        fs::write(path, text.join(" ")).expect("written");
    }

    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a worker has written it");
        let mut numbers = text.split(' ').map(|one| one.parse().expect("a number"));
        let mut next = || numbers.next().expect("enough of them");
        Self {
            first_us: next(),
            last_us: next(),
            calls: next(),
            granted: next(),
            fallbacks: next(),
            credits: next(),
        }
    }
}
