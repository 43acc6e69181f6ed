//! A job of 20,000 records at 2,000 a second, at the defaults and with the strict preset, in virtual
//! time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use balde_throttle::{Degradation, Outcome, Report, Throttler};
use tokio::time::Instant;

use super::builder;

const RECORDS: u64 = 20_000;
const RATE: u64 = 2_000;
const LATENCY: Duration = Duration::from_millis(20);

/// A server that is down for a while, and refuses some requests for no reason.
#[derive(Clone)]
struct Server {
    start: Instant,
    down: Range<Duration>,
    /// Which share of requests gets 429.
    refused: f64,
}

impl Server {
    async fn answer(&self, random: u64) -> Result<(), u16> {
        tokio::time::sleep(LATENCY).await;
        if self.down.contains(&self.start.elapsed()) {
            return Err(503);
        }
        let is_refused = fastrand::Rng::with_seed(random).f64() < self.refused;
        if is_refused { Err(429) } else { Ok(()) }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "send_with_retry passes a reference"
)]
fn report(result: &Result<(), u16>) -> Report {
    match result {
        Ok(()) => Outcome::Success.into(),
        Err(_) => Outcome::Pushback.into(),
    }
}

/// Sends all records, and returns how long that took.
async fn run(throttler: &Throttler, server: Server, workers: usize, seed: u64) -> Duration {
    let start = server.start;
    let next = Arc::new(AtomicU64::new(0));
    let retry = throttler.retry_policy();
    let workers: Vec<_> = (0..workers)
        .map(|_| {
            let (throttler, server, retry) = (throttler.clone(), server.clone(), retry.clone());
            let next = Arc::clone(&next);
            tokio::spawn(async move {
                loop {
                    let record = next.fetch_add(1, Ordering::Relaxed);
                    if record >= RECORDS {
                        return;
                    }
                    let send = |attempt: u32| {
                        let random = seed * 1_000_003 + record * 64 + u64::from(attempt);
                        server.answer(random)
                    };
                    let sent = throttler.send_with_retry("store", 1, &retry, send, report);
                    sent.await.expect("the job has enough retries");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    start.elapsed()
}

fn throttler(degradation: Degradation) -> Throttler {
    let builder = builder().rate(10 * RATE).partition_rate(RATE);
    builder.degradation(degradation).build().unwrap()
}

fn server(down: Range<u64>, refused: f64) -> Server {
    Server {
        start: Instant::now(),
        down: Duration::from_millis(down.start)..Duration::from_millis(down.end),
        refused,
    }
}

#[tokio::test(start_paused = true)]
async fn without_failures_it_takes_as_long_as_its_rate_requires() {
    let took = run(&throttler(Degradation::new()), server(0..0, 0.0), 256, 1).await;
    assert!(took <= Duration::from_millis(10_100), "{took:?}");
    assert!(took >= Duration::from_millis(9_900), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_per_cent_of_429_costs_only_the_retries() {
    for seed in 0..10 {
        let throttler = throttler(Degradation::new());
        let took = run(&throttler, server(0..0, 0.01), 256, seed).await;
        println!("seed {seed}: {took:?}");
        assert!(
            took <= Duration::from_millis(10_400),
            "seed {seed}: {took:?}"
        );
        assert!(!throttler.stats()[0].is_degraded());
    }
}

#[tokio::test(start_paused = true)]
async fn two_seconds_of_503_and_one_per_cent_of_429_cost_no_more_than_three_seconds() {
    for (seed, (from, workers)) in (0..).zip([
        (0, 256),
        (500, 64),
        (2_000, 256),
        (3_000, 64),
        (4_000, 1_000),
        (5_500, 256),
        (7_999, 256),
    ]) {
        let throttler = throttler(Degradation::new());
        let took = run(&throttler, server(from..from + 2_000, 0.01), workers, seed).await;
        println!("outage at {from} ms, {workers} workers: {took:?}");
        assert!(
            took <= Duration::from_secs(13),
            "outage at {from} ms: {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn under_the_strict_preset_the_same_job_takes_minutes() {
    let took = run(
        &throttler(Degradation::strict()),
        server(3_000..5_000, 0.01),
        256,
        1,
    )
    .await;
    println!("{took:?}");
    assert!(took > Duration::from_secs(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_opens_the_circuit_and_the_job_goes_on_when_it_is_over() {
    let throttler = throttler(Degradation::new());
    let took = run(&throttler, server(2_000..62_000, 0.0), 256, 1).await;
    println!("{took:?}");
    // 10 s of work, 60 s of outage, and at most one reset interval and the steps of recovery.
    assert!(took <= Duration::from_secs(77), "{took:?}");
    let failures = throttler.stats()[0].failures();
    // Five seconds of requests, then three probes in five seconds.
    assert!(failures <= 5 * RATE + 3 * 12 + 300, "{failures} failures");
}
