//! The memory store beside its peers: `cargo bench -p balde-bench --bench memory`.
//!
//! Subjects run in turn within each round, so that what else the machine does falls on all of
//! them alike; the figure of each is the median over the rounds. A timing fails nothing.
//!
//! - *floor*: a look-up in a plain `HashMap<String, AtomicU64>` that nobody can change, one clock
//!   read, one compare-and-swap. The map is the standard library's, with its keyed hash: what
//!   strangers send must not be able to make keys meet.
//! - *floor, unkeyed*: the same with hashbrown's fast hash, which promises no such thing.
//! - *governor*: its keyed limiter with its default store (dashmap) and clock (quanta).
//! - *Limitador*: its in-memory limiter, with one limit and one variable.
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

use std::collections::HashMap as StdHashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use balde::{Clock, RateLimiter};
use balde_bench as report;

/// Never reached, so that every check takes a token: the dear case.
const LIMIT: &str = "1000/s burst 1000000000";
const MEMORY_KEYS: usize = 1_000_000;

/// What bounds the ratios; for whoever reads them.
const READING: &str = "The goals were 1.5 times as fast as governor with a precise clock, 2.5 \
times with a cached one, and at most 1.4 times the floor, which has a keyed hash as balde has. \
Where the first two are not met, the floor itself shows why: `governor / floor` is the most that \
any limiter with that clock, one look-up and one compare-and-swap could reach. Reading the \
processor's counter is a third to a half of a check here, and holds up what comes after it; two \
threads on one key fight over one cache line, and how that ends differs from run to run by a \
factor of two; with a million keys it is the cache misses, and a check in balde has some 340 \
instructions, so fewer checks overlap than in the bare floor.";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--memory-of") {
        println!("{}", bytes_per_key(&args[at + 1]));
        return;
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let rounds = if is_quick { 3 } else { 9 };
    let checks = if is_quick { 200_000 } else { 1_000_000 };

    let mut times = report::Table::new(&[
        "keys",
        "threads",
        "floor",
        "balde",
        "governor",
        "Limitador",
        "floor, cached clock",
        "floor, unkeyed, cached clock",
        "balde, cached clock",
    ]);
    let mut ratios = report::Table::new(&[
        "keys",
        "threads",
        "governor / balde",
        "governor / floor",
        "governor / balde cached",
        "governor / floor cached",
        "balde / floor",
        "cached: balde / floor",
        "cached: balde / floor unkeyed",
    ]);
    for set in key_sets() {
        let subjects = Subjects::new(&set.keys);
        for threads in [1, 2] {
            let measured = measure(&subjects, &set, threads, rounds, checks);
            let [
                floor,
                balde,
                governor,
                limitador,
                floor_cached,
                unkeyed_cached,
                balde_cached,
            ] = measured;
            let head = [set.name.to_owned(), threads.to_string()];
            let row = |numbers: &[f64], decimals: usize| {
                let numbers = numbers.iter().map(|number| format!("{number:.decimals$}"));
                head.iter().cloned().chain(numbers).collect::<Vec<_>>()
            };
            times.row(&row(&measured, 1));
            ratios.row(&row(
                &[
                    governor / balde,
                    governor / floor,
                    governor / balde_cached,
                    governor / floor_cached,
                    balde / floor,
                    balde_cached / floor_cached,
                    balde_cached / unkeyed_cached,
                ],
                2,
            ));
            eprintln!("{}\n{}", times.last_line(), ratios.last_line());
            assert!(limitador > 0.0, "everybody was measured");
        }
    }

    let mut memory = report::Table::new(&["store", "bytes per key"]);
    for subject in ["balde", "governor", "limitador"] {
        let own = std::env::current_exe().expect("this program has a path");
        let child = Command::new(own).args(["--memory-of", subject]).output();
        let output = child.expect("this program can be started again").stdout;
        let bytes = String::from_utf8_lossy(&output).trim().to_owned();
        memory.row(&[subject.to_owned(), bytes]);
        eprintln!("{}", memory.last_line());
    }

    let text = format!(
        "Nanoseconds per check as each thread sees it, median of {rounds} rounds of {checks} \
         checks (Limitador: a fiftieth of that) per thread.\n\n{times}\n{ratios}\n{READING}\n\n\
         Resident memory with {MEMORY_KEYS} keys of 24 characters, less what the process had \
         before and what the keys themselves took, per key.\n\n{memory}",
    );
    println!("{text}");
    if !is_quick {
        report::write("memory", "cargo bench -p balde-bench --bench memory", &text);
    }
}

struct KeySet {
    name: &'static str,
    keys: Vec<String>,
    /// Which keys are asked for, in which order.
    order: Vec<u32>,
}

fn key_sets() -> impl Iterator<Item = KeySet> {
    let sets: [(&'static str, u32, bool); 4] = [
        ("1", 1, false),
        ("1,000", 1_000, false),
        ("100,000 Zipf 1.1", 100_000, true),
        ("1,000,000 uniform", 1_000_000, false),
    ];
    sets.into_iter().map(|(name, count, is_zipf)| KeySet {
        name,
        keys: (0..count).map(key).collect(),
        order: order(count, is_zipf),
    })
}

/// A key of 24 characters.
fn key(n: u32) -> String {
    format!("tenant-{:05}/user-{:06}", n % 99_991, n)
}

fn order(count: u32, is_zipf: bool) -> Vec<u32> {
    let mut random = Random(0x853C_49E6_748F_EA9B);
    let mut weights = Vec::new();
    let mut total = 0.0;
    if is_zipf {
        for rank in 1..=count {
            total += 1.0 / f64::from(rank).powf(1.1);
            weights.push(total);
        }
    }
    let pick = |random: &mut Random| {
        if is_zipf {
            #[expect(clippy::cast_precision_loss, reason = "53 random bits fit")]
            let point = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * total;
            u32::try_from(weights.partition_point(|&weight| weight < point)).unwrap_or(0)
        } else {
            u32::try_from(random.next() % u64::from(count)).unwrap_or(0)
        }
    };
    (0..1 << 20)
        .map(|_| pick(&mut random).min(count - 1))
        .collect()
}

/// xorshift64*: good enough to pick keys.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

type Governor = governor::DefaultKeyedRateLimiter<String>;

struct Subjects {
    floor: StdHashMap<String, AtomicU64>,
    unkeyed: hashbrown::HashMap<String, AtomicU64>,
    precise: Clock,
    cached: Clock,
    balde: RateLimiter,
    balde_cached: RateLimiter,
    governor: Governor,
    limitador: Limitador,
}

impl Subjects {
    fn new(keys: &[String]) -> Self {
        let cached = Clock::cached(Duration::from_millis(1));
        let builder = || RateLimiter::builder().limit(LIMIT);
        let words = || keys.iter().map(|key| (key.clone(), AtomicU64::new(0)));
        let subjects = Self {
            floor: words().collect(),
            unkeyed: words().collect(),
            precise: Clock::precise(),
            balde: builder().build().expect("the limit is valid"),
            balde_cached: builder()
                .clock(cached.clone())
                .build()
                .expect("the limit is valid"),
            cached,
            governor: governor(),
            limitador: Limitador::new(keys.len()),
        };
        // All keys are known before anything is timed.
        for key in keys {
            assert!(subjects.balde.blocking().check(key).is_allowed());
            assert!(subjects.balde_cached.blocking().check(key).is_allowed());
            assert!(subjects.governor.check_key(key).is_ok());
        }
        subjects
    }

    fn floor(&self, clock: &Clock, key: &str) -> bool {
        let now_us = clock.now_us();
        self.floor.get(key).is_some_and(|word| swap(word, now_us))
    }

    fn unkeyed(&self, clock: &Clock, key: &str) -> bool {
        let now_us = clock.now_us();
        self.unkeyed.get(key).is_some_and(|word| swap(word, now_us))
    }
}

fn swap(word: &AtomicU64, now_us: u64) -> bool {
    let mut seen = word.load(Ordering::Acquire);
    loop {
        let next = seen.max(now_us) + 1;
        match word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return next > 0,
            Err(other) => seen = other,
        }
    }
}

fn governor() -> Governor {
    let [rate, burst] = [1_000, 1_000_000_000].map(|n| NonZeroU32::new(n).expect("not zero"));
    governor::RateLimiter::keyed(governor::Quota::per_second(rate).allow_burst(burst))
}

struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: limitador::limit::Namespace,
}

impl Limitador {
    fn new(keys: usize) -> Self {
        let limiter = limitador::RateLimiter::new(keys as u64 * 2);
        let variable = "user_id".try_into().expect("a variable's name");
        let limit = limitador::limit::Limit::new("bench", u64::MAX / 4, 1, vec![], vec![variable]);
        limiter.add_limit(limit);
        Self {
            limiter,
            namespace: "bench".into(),
        }
    }

    fn check(&self, key: &str) -> bool {
        let values = StdHashMap::from([("user_id".to_owned(), key.to_owned())]);
        let checked =
            self.limiter
                .check_rate_limited_and_update(&self.namespace, &values.into(), 1);
        checked.is_ok_and(|result| !result.limited)
    }
}

fn measure(
    subjects: &Subjects,
    set: &KeySet,
    threads: usize,
    rounds: usize,
    checks: usize,
) -> [f64; 7] {
    let mut samples: [Vec<f64>; 7] = Default::default();
    for round in 0..rounds {
        let run = Run {
            set,
            threads,
            checks,
            offset: round * 7_919,
        };
        let (balde, cached) = (subjects.balde.blocking(), subjects.balde_cached.blocking());
        let times = [
            run.time(|key| subjects.floor(&subjects.precise, key)),
            run.time(|key| balde.check(key).is_allowed()),
            run.time_owned(|key| subjects.governor.check_key(key).is_ok()),
            Run {
                checks: checks / 50,
                ..run
            }
            .time(|key| subjects.limitador.check(key)),
            run.time(|key| subjects.floor(&subjects.cached, key)),
            run.time(|key| subjects.unkeyed(&subjects.cached, key)),
            run.time(|key| cached.check(key).is_allowed()),
        ];
        for (sample, time) in samples.iter_mut().zip(times) {
            sample.push(time);
        }
    }
    samples.map(report::median)
}

#[derive(Clone, Copy)]
struct Run<'a> {
    set: &'a KeySet,
    threads: usize,
    checks: usize,
    offset: usize,
}

impl Run<'_> {
    fn time(&self, check: impl Fn(&str) -> bool + Sync) -> f64 {
        self.time_owned(|key: &String| check(key))
    }

    /// Nanoseconds per check, with every thread doing all of them.
    fn time_owned(&self, check: impl Fn(&String) -> bool + Sync) -> f64 {
        let barrier = Barrier::new(self.threads);
        let slowest = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (barrier, check) = (&barrier, &check);
                    scope.spawn(move || {
                        let order = &self.set.order;
                        let from = self.offset + thread * 500_009;
                        barrier.wait();
                        let start = Instant::now();
                        let mut allowed = 0_usize;
                        for at in from..from + self.checks {
                            let key = &self.set.keys[order[at & (order.len() - 1)] as usize];
                            allowed += usize::from(check(black_box(key)));
                        }
                        let elapsed = start.elapsed();
                        assert_eq!(allowed, self.checks, "nothing is refused here");
                        elapsed
                    })
                })
                .collect();
            let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|time| time.expect("no worker panics")).max()
        });
        let elapsed = slowest.unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "a count of checks fits")]
        let checks = self.checks as f64;
        elapsed.as_secs_f64() * 1e9 / checks
    }
}

fn bytes_per_key(subject: &str) -> String {
    let count = u32::try_from(MEMORY_KEYS).expect("fits");
    // Keys are made one by one and dropped, so that only what the store keeps counts.
    let before;
    let after;
    match subject {
        "balde" => {
            let limiter = RateLimiter::builder().limit("10/min");
            let limiter = limiter.build().expect("the limit is valid");
            before = resident_bytes();
            for n in 0..count {
                limiter.blocking().check(key(n));
            }
            after = resident_bytes();
            assert_eq!(limiter.memory_stats().keys, u64::from(count));
        }
        "governor" => {
            let limiter = governor();
            before = resident_bytes();
            for n in 0..count {
                assert!(limiter.check_key(&key(n)).is_ok());
            }
            after = resident_bytes();
            assert_eq!(limiter.len(), MEMORY_KEYS);
        }
        _ => {
            let limiter = Limitador::new(MEMORY_KEYS);
            before = resident_bytes();
            for n in 0..count {
                assert!(limiter.check(&key(n)));
            }
            after = resident_bytes();
        }
    }
    format!("{}", (after - before) / u64::from(count))
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4_096
}
