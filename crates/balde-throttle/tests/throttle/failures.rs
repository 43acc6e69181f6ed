//! One partition's store fails for a minute: degradation, circuit breaker and server hints.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use balde_throttle::{Circuit, Degradation, Outcome, Refusal, Report, RunError, Throttler};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::builder;

const STORES: [&str; 5] = ["bad", "one", "two", "three", "four"];
const RATE: u64 = 1_000;
const BATCH: u64 = 10;
const FAILS_FROM: Duration = Duration::from_secs(10);
const FAILS_UNTIL: Duration = Duration::from_secs(70);
const RUNS_FOR: Duration = Duration::from_secs(180);

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Captures the log of this thread from now on.
    fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        // With one subscriber in the process, tracing caches the interest of the thread that first
        // reaches an event; with two it asks each.
        static ANOTHER: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&ANOTHER);
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    fn all(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Writes batches until the end of the run, and waits while the circuit is open.
async fn import(throttler: Throttler, store: &'static str, written: Arc<AtomicU64>) {
    let start = Instant::now();
    while start.elapsed() < RUNS_FOR {
        let write = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let is_down = (FAILS_FROM..FAILS_UNTIL).contains(&start.elapsed());
            if store == "bad" && is_down {
                Err("the store is down")
            } else {
                Ok(())
            }
        };
        match throttler.run(store, BATCH, write).await {
            Ok(()) => {
                written.fetch_add(BATCH, Ordering::Relaxed);
            }
            Err(RunError::Failed(_)) => {}
            Err(RunError::Refused(Refusal::CircuitOpen { retry_after })) => {
                tokio::time::sleep(retry_after).await;
            }
            Err(RunError::Refused(refusal)) => panic!("{refusal}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn others_keep_their_rate_while_the_failing_one_degrades_opens_and_recovers() {
    let (lines, _listening) = Lines::listen();
    let throttler = builder()
        .name("import")
        .rate(10 * RATE)
        .partition_rate(RATE)
        .degradation(
            Degradation::strict()
                .recovery(Duration::from_secs(5))
                .reset(Duration::from_secs(5)),
        )
        .build()
        .unwrap();
    let written: Vec<_> = STORES.map(|_| Arc::new(AtomicU64::new(0))).into();
    let mut importers = Vec::new();
    for (store, written) in STORES.iter().zip(&written) {
        for _ in 0..8 {
            let import = import(throttler.clone(), store, Arc::clone(written));
            importers.push(tokio::spawn(import));
        }
    }
    // In the middle of the outage.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let bad = throttler
        .stats()
        .into_iter()
        .find(|one| one.name() == "bad");
    let bad = bad.unwrap();
    assert!(bad.is_degraded());
    assert_ne!(bad.circuit(), Circuit::Closed);
    assert_eq!(bad.pace().rate().tokens(), RATE / 10, "at the floor");
    for importer in importers {
        importer.await.unwrap();
    }

    let full = RATE * RUNS_FOR.as_secs();
    for (store, written) in STORES.iter().zip(&written).skip(1) {
        let written = written.load(Ordering::Relaxed);
        assert!(written * 100 >= full * 99, "{store}: {written} of {full}");
    }
    let bad = throttler
        .stats()
        .into_iter()
        .find(|one| one.name() == "bad");
    let bad = bad.unwrap();
    assert!(!bad.is_degraded(), "{bad:?}");

    let events = lines.all();
    let logged: Vec<(&str, &str)> = events
        .iter()
        .map(|line| {
            assert_eq!(line["fields"]["partition"], "bad");
            assert_eq!(line["fields"]["policy"], "import");
            let level = line["level"].as_str().unwrap();
            (level, line["fields"]["event_type"].as_str().unwrap())
        })
        .collect();
    let mut order = logged.clone();
    order.dedup();
    let degraded = ("WARN", "throttle_degraded");
    let opened = ("ERROR", "throttle_circuit_opened");
    let closed = ("INFO", "throttle_circuit_closed");
    let restored = ("INFO", "throttle_restored");
    assert_eq!(order, [degraded, opened, closed, restored]);
    let degradations = logged.iter().filter(|one| **one == degraded).count();
    let first = &events[0]["fields"];
    for (field, expected) in [
        ("old_rate", 1_000),
        ("new_rate", 900),
        ("old_burst", 100),
        ("new_burst", 90),
    ] {
        assert_eq!(first[field], expected, "{field}");
    }
    for (one, next) in events.iter().zip(&events[1..degradations]) {
        assert_eq!(one["fields"]["new_rate"], next["fields"]["old_rate"]);
        assert_eq!(one["fields"]["new_burst"], next["fields"]["old_burst"]);
    }
    assert_eq!(events[degradations - 1]["fields"]["new_rate"], 100);
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_refuses_new_and_waiting_requests_with_the_time_to_retry() {
    let throttler = builder()
        .rate(1_000)
        .partition_rate(1)
        .degradation(
            Degradation::strict()
                .reset(Duration::from_secs(7))
                .probes(1),
        )
        .build()
        .unwrap();
    let crowd: Vec<_> = (0..1_000)
        .map(|_| {
            let throttler = throttler.clone();
            tokio::spawn(async move { throttler.acquire("store", 1).await })
        })
        .collect();
    while throttler.waiters() < 1_000 {
        tokio::task::yield_now().await;
    }
    throttler.report("store", Outcome::Timeout);
    let start = Instant::now();
    let retry_after = Duration::from_secs(7);
    for waiter in crowd {
        let refused = waiter.await.unwrap();
        assert_eq!(refused, Err(Refusal::CircuitOpen { retry_after }));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(
        throttler
            .acquire("store", 1)
            .await
            .unwrap_err()
            .retry_after(),
        Some(Duration::from_secs(4))
    );
    tokio::time::advance(Duration::from_secs(4)).await;

    // One probe passes, and the next request waits for its outcome.
    let probe = throttler.permit("store", 1).await.unwrap();
    let mut behind = Box::pin(throttler.acquire("store", 1));
    let waits = tokio::time::timeout(Duration::from_secs(5), &mut behind).await;
    assert!(waits.is_err(), "no more than one probe");
    probe.report(Outcome::Success);
    assert_eq!(behind.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_store_requests_is_kept_and_degrades_it_once() {
    let throttler = builder()
        .rate(10_000)
        .partition_rate(1_000)
        .build()
        .unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let store = throttler.partition("store").unwrap();
    let pushback = Report::from(Outcome::Pushback).retry_after(Duration::from_secs(3));
    // Fifty requests were in flight when it said so.
    for _ in 0..50 {
        store.report(pushback);
    }
    assert_eq!(store.pace().to_string(), "900/s burst 90");
    let start = Instant::now();
    let (other, paused) = tokio::join!(
        async {
            throttler.acquire("other", 1).await.unwrap();
            start.elapsed()
        },
        async {
            store.acquire(1).await.unwrap();
            start.elapsed()
        }
    );
    assert!(other < Duration::from_millis(5), "others do not pause");
    assert!((3_000..=3_002).contains(&paused.as_millis()), "{paused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_servers_remaining_quota_is_not_exceeded_before_its_reset() {
    let throttler = builder()
        .rate(10_000)
        .partition_rate(1_000)
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    store.acquire(1).await.unwrap();
    let start = Instant::now();
    store.report(Report::from(Outcome::Success).remaining(20, Duration::from_secs(10)));
    for _ in 0..20 {
        store.acquire(1).await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    store.acquire(1).await.unwrap();
    let took = start.elapsed().as_millis();
    assert!((10_000..=10_002).contains(&took), "{took} ms");
    assert_eq!(
        store.pace().to_string(),
        "1000/s burst 100",
        "that is not an error"
    );
}

#[tokio::test(start_paused = true)]
async fn the_caller_chooses_which_outcomes_count_as_errors() {
    let throttler = builder()
        .rate(10_000)
        .partition_rate(1_000)
        .counts_as_error(|outcome| outcome == Outcome::Pushback)
        .build()
        .unwrap();
    throttler.report("store", Outcome::Error);
    throttler.report("store", Outcome::Timeout);
    assert!(!throttler.stats()[0].is_degraded());
    throttler.report("store", Outcome::Pushback);
    assert!(throttler.stats()[0].is_degraded());
}
