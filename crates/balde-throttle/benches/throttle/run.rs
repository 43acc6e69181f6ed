//! The rounds, and what becomes of them.

use std::future::Future;
use std::time::{Duration, Instant};

use balde::Clock;
use balde_throttle::Throttler;
use cpu_time::ThreadTime;

use balde_bench::{self as report, Table, median};

/// Both buckets stay far from empty: nobody waits, so what is measured is asking.
const PLENTY: u64 = 1_000_000_000;

pub(crate) fn run(is_quick: bool) {
    let (rounds, calls) = if is_quick {
        (3, 100_000)
    } else {
        (15, 1_000_000)
    };
    let uncontended = uncontended(rounds, calls);
    let waiting = waiting(if is_quick { 1 } else { 5 });
    let accuracy = accuracy(if is_quick { 1 } else { 10 });
    let text = format!("{uncontended}\n{waiting}\n{accuracy}");
    println!("{text}");
    if !is_quick {
        let command = "cargo bench -p balde-throttle --bench throttle";
        report::write("throttle", command, &text);
    }
}

fn uncontended(rounds: usize, calls: u32) -> String {
    let runtime = runtime(false);
    let leaky = |is_fair| {
        leaky_bucket::RateLimiter::builder()
            .initial(1 << 40)
            .max(1 << 40)
            .refill(1_000)
            .fair(is_fair)
            .build()
    };
    let (fair, unfair) = (leaky(true), leaky(false));
    let throttler = Throttler::new(PLENTY, PLENTY).expect("a throttler");
    let partition = throttler.partition("orders").expect("a partition");
    // Buckets start empty.
    std::thread::sleep(Duration::from_millis(150));
    let mut rows: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        let ns = runtime.block_on(async {
            [
                time(calls, async || fair.acquire(1).await).await,
                time(calls, async || unfair.acquire(1).await).await,
                time(calls, async || {
                    throttler.acquire("orders", 1).await.expect("tokens");
                })
                .await,
                time(calls, async || {
                    partition.acquire(1).await.expect("tokens");
                })
                .await,
                time(calls, async || {
                    throttler.try_acquire("orders", 1).expect("tokens");
                })
                .await,
            ]
        });
        for (row, ns) in rows.iter_mut().zip(ns) {
            row.push(ns);
        }
    }
    let mut table = Table::new(&["acquire of one token", "ns", "of leaky-bucket's"]);
    let names = [
        "leaky-bucket",
        "leaky-bucket, unfair",
        "balde, by name",
        "balde, by handle",
        "balde, try, by name",
    ];
    for (name, row) in names.iter().zip(&rows) {
        let ratios = row.iter().zip(&rows[0]).map(|(ns, leaky)| ns / leaky);
        let ratio = median(ratios.collect());
        let ns = median(row.clone());
        table.row(&[
            (*name).to_owned(),
            format!("{ns:.1}"),
            format!("{ratio:.2}"),
        ]);
    }
    format!(
        "Nanoseconds for a token that nobody else wants, one thread, median of {rounds} rounds of \
         {calls}. balde takes it from two buckets, and goes through its lock and clock once in many \
         requests: here, with a burst of a hundred million, once in a million; with one of 200, once \
         in thirteen (`throttle/ahead.rs`).\n\n{table}"
    )
}

async fn time<F: Future<Output = ()>>(calls: u32, mut call: impl FnMut() -> F) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call().await;
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

/// Waits that are served in virtual time: what a wait costs apart from the waiting.
fn waiting(rounds: usize) -> String {
    const WAITERS: u32 = 1_000;
    const RATE: u32 = 1_000_000;
    let mut at_once = Vec::new();
    let mut waited = Vec::new();
    for _ in 0..rounds {
        let runtime = runtime(true);
        let seconds = runtime.block_on(async {
            let throttler = virtual_throttler(u64::from(RATE));
            tokio::time::advance(Duration::from_secs(1)).await;
            let partition = throttler.partition("orders").expect("a partition");
            let start = ThreadTime::now();
            for _ in 0..RATE / 10 {
                partition.acquire(1).await.expect("tokens");
            }
            start.elapsed().as_secs_f64()
        });
        at_once.push(seconds * 1e9 / f64::from(RATE / 10));

        let seconds = runtime.block_on(async {
            let throttler = virtual_throttler(u64::from(RATE));
            let start = ThreadTime::now();
            let tasks: Vec<_> = (0..WAITERS)
                .map(|_| {
                    let partition = throttler.partition("orders").expect("a partition");
                    tokio::spawn(async move {
                        for _ in 0..RATE / WAITERS {
                            partition.acquire(1).await.expect("tokens");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task");
            }
            start.elapsed().as_secs_f64()
        });
        waited.push(seconds * 1e9 / f64::from(RATE));
    }
    let mut table = Table::new(&[
        "in virtual time",
        "ns of processor time",
        "a second on one core",
    ]);
    for (name, samples) in [("had at once", at_once), ("waited for", waited)] {
        let ns = median(samples);
        table.row(&[
            name.to_owned(),
            format!("{ns:.0}"),
            format!("{:.0}", 1e9 / ns),
        ]);
    }
    format!(
        "Acquires in virtual time, to the token: with a clock that stands still nothing is lent \
         ahead, so every one goes through the lock. Waiting: {WAITERS} tasks in one line, a million \
         acquires, tasks and timer included.\n\n{table}"
    )
}

fn virtual_throttler(rate: u64) -> Throttler {
    Throttler::builder()
        .rate(rate)
        .partition_rate(rate)
        .clock(Clock::tokio())
        .build()
        .expect("a throttler")
}

/// How exactly a rate is kept in real time.
fn accuracy(seconds: u64) -> String {
    let mut table = Table::new(&["rate", "granted", "of the rate", "worst second"]);
    for rate in [500, 2_000, 20_000] {
        let (granted, by_second) = runtime(false).block_on(saturate(rate, seconds));
        let expected = rate * seconds;
        let worst = by_second
            .iter()
            .map(|granted| granted.abs_diff(rate))
            .max()
            .unwrap_or(0);
        // Hundredths of a percent, in whole numbers.
        let share = granted * 10_000 / expected;
        table.row(&[
            format!("{rate}/s"),
            format!("{granted} of {expected}"),
            format!("{}.{:02} %", share / 100, share % 100),
            format!("{worst} off"),
        ]);
    }
    format!("In real time, {seconds} s, saturated by 50 tasks, from the first token on.\n\n{table}")
}

async fn saturate(rate: u64, seconds: u64) -> (u64, Vec<u64>) {
    let throttler = Throttler::new(rate * 10, rate).expect("a throttler");
    let warm = throttler.partition("orders").expect("a partition");
    warm.acquire(1).await.expect("a token");
    let start = Instant::now();
    let end = Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let partition = warm.clone();
            tokio::spawn(async move {
                let mut by_second = vec![0_u64; usize::try_from(seconds).unwrap_or(1)];
                loop {
                    partition.acquire(1).await.expect("a token");
                    let second = usize::try_from(start.elapsed().as_secs()).unwrap_or(0);
                    if start.elapsed() >= end {
                        return by_second;
                    }
                    by_second[second] += 1;
                }
            })
        })
        .collect();
    let mut by_second = vec![0; usize::try_from(seconds).unwrap_or(1)];
    for task in tasks {
        for (sum, more) in by_second.iter_mut().zip(task.await.expect("a task")) {
            *sum += more;
        }
    }
    (by_second.iter().sum(), by_second)
}

fn runtime(is_paused: bool) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(is_paused)
        .build()
        .expect("a runtime")
}
