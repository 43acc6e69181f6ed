//! Queues of waiters: order, many waiters, cancellation at any moment, and closing.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use balde::{Clock, ManualClock};
use balde_throttle::{Oversize, PartitionStats, Refusal, Throttler};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::builder;

const CROWD: usize = 100_000;

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_are_served_in_order_and_cancelled_ones_leave_the_queue() {
    let throttler = builder()
        .rate(50_000)
        .partition_rate(10_000)
        .build()
        .unwrap();
    let store = Arc::new(throttler.partition("store").unwrap());
    let served = Arc::new(Mutex::new(Vec::with_capacity(CROWD)));
    let mut crowd = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        let (store, served) = (Arc::clone(&store), Arc::clone(&served));
        crowd.push(tokio::spawn(async move {
            store.acquire(1).await.unwrap();
            served.lock().push(number);
        }));
    }
    while throttler.waiters() < CROWD {
        tokio::task::yield_now().await;
    }
    let start = Instant::now();
    // Every third one is cancelled.
    for gone in crowd.iter().step_by(3) {
        gone.abort();
    }
    let mut stayed = 0;
    for waiter in crowd {
        stayed += usize::from(waiter.await.is_ok());
    }
    let served = served.lock();
    assert_eq!(served.len(), stayed);
    assert_eq!(stayed, CROWD - CROWD.div_ceil(3));
    assert!(served.is_sorted(), "first come, first served");
    assert_eq!(throttler.waiters(), 0);
    // No waiter waited for the tokens of cancelled ones: 66,666 at 10,000 a second.
    let took = start.elapsed();
    assert!(took <= Duration::from_millis(6_700), "{took:?}");
    assert!(took >= Duration::from_millis(6_500), "{took:?}");
}

/// Resident memory is the whole process's, so the measurement runs alone in a child process: this test
/// binary again, with an environment variable set.
#[test]
fn a_waiter_takes_a_bounded_number_of_bytes_and_its_memory_is_released() {
    const ALONE: &str = "BALDE_TEST_MEMORY";
    const NAME: &str = "queue::a_waiter_takes_a_bounded_number_of_bytes_and_its_memory_is_released";
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        return runtime.block_on(async { measure_waiters() });
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    print!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
}

fn measure_waiters() {
    let throttler = builder()
        .rate(50_000)
        .partition_rate(10_000)
        .build()
        .unwrap();
    let store = throttler.partition("store").unwrap();
    let mut waiting: Vec<_> = (0..CROWD).map(|_| Box::pin(store.acquire(1))).collect();
    let before = resident_kb();
    for one in &mut waiting {
        assert!(poll(one).is_pending());
    }
    let each = (resident_kb() - before) * 1_024 / CROWD as u64;
    println!("{each} bytes for each of {CROWD} waiters");
    assert!(each <= 300, "{each} bytes for each waiter");
    drop(waiting);
    assert_eq!(throttler.waiters(), 0);
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn one_waiter_above_the_maximum_is_refused() {
    let throttler = builder()
        .rate(10)
        .partition_rate(10)
        .waiters_max(3)
        .build()
        .unwrap();
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(throttler.acquire("store", 1)))
        .collect();
    for one in &mut waiting {
        assert!(poll(one).is_pending());
    }
    assert_eq!(
        throttler.acquire("store", 1).await,
        Err(Refusal::TooManyWaiters { waiters_max: 3 })
    );
    waiting.pop();
    assert_eq!(throttler.waiters(), 2);
    let fourth = throttler.acquire("store", 1);
    let (first, fourth) = tokio::join!(waiting.remove(0), fourth);
    assert_eq!((first, fourth), (Ok(()), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_throttler_wakes_all_waiters_with_an_error() {
    let throttler = builder().rate(10).partition_rate(10).build().unwrap();
    let crowd: Vec<_> = (0..10_000)
        .map(|number| {
            let store = throttler
                .partition(&format!("store {}", number % 7))
                .unwrap();
            tokio::spawn(async move { store.acquire(5).await })
        })
        .collect();
    while throttler.waiters() < 10_000 {
        tokio::task::yield_now().await;
    }
    let late = throttler.partition("store 1").unwrap();
    drop(throttler);
    for waiter in crowd {
        assert_eq!(waiter.await.unwrap(), Err(Refusal::Closed));
    }
    assert_eq!(late.try_acquire(1), Err(Refusal::Closed));
    assert_eq!(late.acquire(1).await, Err(Refusal::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_large_request_is_not_starved_by_small_ones() {
    let throttler = builder()
        .rate(1_000)
        .partition_rate(10_000)
        .build()
        .unwrap();
    let small: Vec<_> = (0..50)
        .map(|number| {
            let throttler = throttler.clone();
            let partition = format!("small {}", number % 5);
            tokio::spawn(async move { while throttler.acquire(&partition, 1).await.is_ok() {} })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    // The whole global burst at once, while other requests take every token as it arrives.
    throttler.acquire("large", 100).await.unwrap();
    assert!(
        start.elapsed() <= Duration::from_millis(300),
        "{:?}",
        start.elapsed()
    );
    throttler.close();
    for one in small {
        one.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_the_burst_is_saved_up_or_refused() {
    let slices = builder().rate(1_000).partition_rate(100).build().unwrap();
    let start = Instant::now();
    slices.acquire("store", 250).await.unwrap();
    let took = start.elapsed();
    assert!((2_500..=2_502).contains(&took.as_millis()), "{took:?}");
    assert_eq!(
        slices.try_acquire("store", 11),
        Err(Refusal::TooLarge { n: 11, burst: 10 }),
        "it could only be served over time"
    );

    let refuses = builder()
        .rate(1_000)
        .partition_rate(100)
        .oversize(Oversize::Refuse)
        .build()
        .unwrap();
    let refusal = Refusal::TooLarge { n: 11, burst: 10 };
    assert_eq!(refuses.acquire("store", 11).await, Err(refusal));
    assert_eq!(refuses.acquire("store", 10).await, Ok(()));
    assert!(refusal.to_string().contains("more than the burst of 10"));
    // The burst shrinks with the rate, and a waiter above it is refused.
    let waits = refuses.acquire("store", 10);
    let degrades = async { refuses.report("store", balde_throttle::Outcome::Error) };
    let (waited, ()) = tokio::join!(waits, degrades);
    assert_eq!(waited, Err(Refusal::TooLarge { n: 10, burst: 9 }));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_takes_nothing() {
    let throttler = builder().rate(100).partition_rate(100).build().unwrap();
    let start = Instant::now();
    let (first, late) = tokio::join!(
        throttler.acquire("store", 10),
        throttler.acquire_within("store", 10, Duration::from_millis(150)),
    );
    assert_eq!((first, late), (Ok(()), Err(Refusal::Deadline)));
    let took = start.elapsed().as_millis();
    assert!((150..=152).contains(&took), "{took} ms");
    // The five tokens that arrived meanwhile are available to the next request.
    assert_eq!(
        throttler.acquire_within("store", 5, Duration::ZERO).await,
        Ok(())
    );
}

#[test]
fn a_cancelled_waiter_loses_no_token_and_changes_no_order() {
    let clock = ManualClock::at_us(1_000_000);
    let throttler = Throttler::builder()
        .rate(1_000)
        .partition_rate(100)
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let store = throttler.partition("store").unwrap();
    let mut first = Box::pin(store.acquire(10));
    let mut second = Box::pin(store.acquire(5));
    let mut third = Box::pin(store.acquire(5));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert!(poll(&mut third).is_pending());
    clock.advance(Duration::from_millis(50));
    // There are five tokens: the first waiter needs ten, and the second does not overtake it.
    assert!(store.try_acquire(1).is_err());
    assert!(poll(&mut second).is_pending());
    // It is cancelled, and the second gets them at once.
    drop(first);
    assert!(poll(&mut second).is_ready());
    assert!(poll(&mut third).is_pending());
    clock.advance(Duration::from_millis(50));
    // Granted, but dropped before it was polled: its five tokens are available to another.
    assert_eq!(throttler.waiters(), 1);
    assert!(store.try_acquire(1).is_err(), "they are the third's");
    assert_eq!(throttler.waiters(), 0);
    drop(third);
    assert_eq!(store.level(), 5);
    assert_eq!(store.stats().granted(), 15 - 10);
}

/// A seeded random run: tasks on several partitions request tokens, wait, cancel at random moments and
/// try again, in a single-threaded runtime with paused time. Every waiter is served, none overtakes in
/// its partition, and the limits are kept.
#[test]
fn in_every_order_all_waiters_are_served_and_none_overtakes() {
    let seeds = std::env::var("BALDE_THROTTLE_SEEDS").map_or(60, |text| text.parse().unwrap());
    for seed in 0..seeds {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(random_run(seed));
    }
}

async fn random_run(seed: u64) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let throttler = builder().rate(400).partition_rate(200).build().unwrap();
    let tickets: Arc<Mutex<BTreeMap<&str, Vec<u64>>>> = Arc::default();
    let next = Arc::new(AtomicU64::new(0));
    let granted = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..40)
        .map(|task| {
            let mut random = fastrand::Rng::with_seed(seed * 1_000 + task);
            let throttler = throttler.clone();
            let (tickets, next) = (Arc::clone(&tickets), Arc::clone(&next));
            let (granted, ended) = (Arc::clone(&granted), Arc::clone(&ended));
            tokio::spawn(async move {
                for _ in 0..20 {
                    for _ in 0..random.u8(..4) {
                        tokio::task::yield_now().await;
                    }
                    let name = NAMES[random.usize(..3)];
                    let n = [1, 1, 2, 5, 20, 45][random.usize(..6)];
                    let mut acquire = Box::pin(throttler.acquire(name, n));
                    // The first poll joins the queue.
                    let ticket = next.fetch_add(1, Ordering::Relaxed);
                    if poll(&mut acquire).is_ready() {
                        // The queue was empty. Waiters that were granted may not have been polled yet.
                        granted.fetch_add(n, Ordering::Relaxed);
                        continue;
                    }
                    let patience = Duration::from_millis(random.u64(..2_000));
                    let outcome = match random.u8(..4) {
                        0 => tokio::time::timeout(patience, acquire).await.ok(),
                        1 => {
                            drop(acquire);
                            None
                        }
                        _ => Some(acquire.await),
                    };
                    if outcome == Some(Ok(())) {
                        granted.fetch_add(n, Ordering::Relaxed);
                        tickets.lock().entry(name).or_default().push(ticket);
                    }
                }
                ended.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(600), all).await;
    assert!(
        in_time.is_ok(),
        "{ended:?} of 40 ended: a waiter was never served"
    );
    assert_eq!(throttler.waiters(), 0);
    for (name, tickets) in tickets.lock().iter() {
        assert!(tickets.is_sorted(), "{name}: {tickets:?}");
    }
    let granted = granted.load(Ordering::Relaxed);
    let elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap();
    assert!(
        granted <= 400 * elapsed_ms / 1_000 + 40,
        "{granted} in {elapsed_ms} ms"
    );
    let counted: u64 = throttler.stats().iter().map(PartitionStats::granted).sum();
    assert_eq!(
        counted, granted,
        "tokens that were granted and not used went back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_of_many_threads_that_cancel_and_retry_are_all_served() {
    let throttler = Throttler::new(200_000, 100_000).unwrap();
    let granted = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..64_u64)
        .map(|task| {
            let (throttler, granted) = (throttler.clone(), Arc::clone(&granted));
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(task);
                for _ in 0..400 {
                    let name = ["a", "b", "c"][random.usize(..3)];
                    let n = random.u64(1..30);
                    let acquire = throttler.acquire(name, n);
                    let patience = Duration::from_micros(random.u64(..3_000));
                    let outcome = if random.bool() {
                        tokio::time::timeout(patience, acquire).await.ok()
                    } else {
                        Some(acquire.await)
                    };
                    if outcome == Some(Ok(())) {
                        granted.fetch_add(n, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert!(in_time.is_ok(), "a waiter was never served");
    let counted: u64 = throttler.stats().iter().map(PartitionStats::granted).sum();
    assert_eq!(counted, granted.load(Ordering::Relaxed));
}

#[test]
fn when_the_drivers_runtime_ends_another_runtime_drives() {
    let throttler = Throttler::new(1_000, 1_000).unwrap();
    let store = throttler.partition("store").unwrap();
    let first = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let ahead = {
        let store = store.clone();
        // The tokens of one second: it still waits when its runtime ends.
        first.spawn(async move { store.acquire(1_000).await })
    };
    let second = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let waits = async {
        while throttler.waiters() < 1 {
            tokio::task::yield_now().await;
        }
        let behind = store.acquire(10);
        let ends = async {
            while throttler.waiters() < 2 {
                tokio::task::yield_now().await;
            }
            first.shutdown_background();
        };
        tokio::join!(behind, ends).0
    };
    let outcome =
        second.block_on(async { tokio::time::timeout(Duration::from_secs(30), waits).await });
    assert_eq!(outcome, Ok(Ok(())), "a new driver must serve the waiter");
    drop(ahead);
}

#[test]
fn waiting_without_a_runtime_is_refused() {
    let throttler = Throttler::new(10, 10).unwrap();
    let mut acquire = Box::pin(throttler.acquire("store", 1));
    assert_eq!(poll(&mut acquire), Poll::Ready(Err(Refusal::NoRuntime)));
    assert_eq!(throttler.waiters(), 0);
}

#[test]
fn partitions_are_bounded_and_a_degraded_one_is_not_removed() {
    let clock = ManualClock::at_us(0);
    let throttler = Throttler::builder()
        .rate(10_000)
        .partition_rate(1_000)
        .partitions_max(3)
        .clock(Clock::manual(&clock))
        .build()
        .unwrap();
    throttler.report("bad", balde_throttle::Outcome::Error);
    let held = throttler.partition("held").unwrap();
    for number in 0..1_000 {
        let _empty = throttler.try_acquire(&format!("idle {number}"), 1);
    }
    let stats = throttler.stats();
    assert_eq!(stats.len(), 3);
    let bad = stats
        .iter()
        .find(|partition| partition.name() == "bad")
        .unwrap();
    assert_eq!(bad.pace().to_string(), "900/s burst 90");

    let other = throttler.partition("other").unwrap();
    assert_eq!(
        throttler.try_acquire("one more", 1),
        Err(Refusal::TooManyPartitions { partitions_max: 3 })
    );
    drop((held, other));
    clock.advance(Duration::from_secs(1));
    assert!(matches!(
        throttler.try_acquire("one more", 1),
        Err(Refusal::NotNow { .. })
    ));
    assert_eq!(throttler.try_acquire("", 1), Err(Refusal::BadPartition));
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
