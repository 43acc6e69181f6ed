//! A million keys in three tiers beside a million under one limit:
//! `cargo bench -p balde-bench --bench tiers`.
//!
//! Subjects run in turn within each round, so that what else the machine does falls on all of
//! them alike; the figure of each is the median over the rounds. A timing fails nothing.
//!
//! - *one limit*: a limiter without tiers.
//! - *three tiers*: a third of the keys without a tier, a third in each of two.
//! - *three tiers, moving*: the same, while one key in a hundred moves to another tier every second.
//!   The moves are part of its time.
//! - *three tiers, looked up*: a function of the key returns the tier.
//!
//! `--quick` makes it short, for trying things out, and then writes no report.

use std::process::Command;
use std::time::{Duration, Instant};

use balde::{RateLimiter, RateLimiterBuilder};
use balde_bench as report;

const KEYS: u32 = 1_000_000;

/// Never reached, so that every check takes a token: the dear case. Refill is slow, because full
/// buckets are forgotten.
const LIMIT: &str = "1/h burst 100000";
const SILVER: &str = "2/h burst 100000";
const GOLD: &str = "3/h burst 100000";

/// Checks between two looks at the clock.
const BLOCK: u32 = 1_000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--memory-of") {
        println!("{}", bytes_per_key(&args[at + 1]));
        return;
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let (rounds, lasts) = if is_quick { (3, 1) } else { (9, 7) };
    let lasts = Duration::from_secs(lasts);

    let names = [
        "one limit",
        "three tiers",
        "three tiers, moving",
        "three tiers, looked up",
    ];
    let limiters = [one(), three(), three(), looked_up()];
    for limiter in &limiters {
        fill(limiter);
    }
    let mut samples = [const { Vec::new() }; 4];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut moved = 0;
    for _ in 0..rounds {
        for (at, limiter) in limiters.iter().enumerate() {
            let moves_per_second = if at == 2 { KEYS / 100 } else { 0 };
            let (nanos, moves) = run(limiter, &mut rng, lasts, moves_per_second);
            samples[at].push(nanos);
            moved += moves;
        }
    }
    let base = samples[0].clone();
    let mut times =
        report::Table::new(&["limiter", "ns per check", "/ one limit, median of rounds"]);
    for (name, samples) in names.iter().zip(samples) {
        let ratios = samples.iter().zip(&base).map(|(one, base)| one / base);
        let ratio = report::median(ratios.collect());
        let cells = [
            (*name).to_owned(),
            format!("{:.1}", report::median(samples)),
            format!("{ratio:.2}"),
        ];
        times.row(&cells);
        eprintln!("{}", times.last_line());
    }

    let mut memory = report::Table::new(&["limiter", "bytes per key"]);
    for subject in ["one limit", "three tiers"] {
        let own = std::env::current_exe().expect("this program has a path");
        let child = Command::new(own).args(["--memory-of", subject]).output();
        let output = child.expect("this program can be started again").stdout;
        let bytes = String::from_utf8_lossy(&output).trim().to_owned();
        memory.row(&[subject.to_owned(), bytes]);
        eprintln!("{}", memory.last_line());
    }

    let text = format!(
        "{KEYS} keys, checked at random by one thread; median of {rounds} rounds of {} s each. \
         {moved} moves between tiers in {} s.\n\n{times}\n\
         Resident memory per key, less what the process had before.\n\n{memory}",
        lasts.as_secs(),
        lasts.as_secs() * rounds,
    );
    println!("{text}");
    if !is_quick {
        report::write("tiers", "cargo bench -p balde-bench --bench tiers", &text);
    }
}

fn builder() -> RateLimiterBuilder {
    RateLimiter::builder().limit(LIMIT)
}

fn one() -> RateLimiter {
    builder().build().expect("the limit is valid")
}

fn tiered() -> RateLimiterBuilder {
    builder().tier("silver", SILVER).tier("gold", GOLD)
}

fn three() -> RateLimiter {
    let limiter = tiered().build().expect("the limits are valid");
    for n in 0..KEYS {
        move_to(&limiter, n, n % 3);
    }
    limiter
}

fn looked_up() -> RateLimiter {
    let tier_of = |key: &[u8]| match key.last().map_or(0, |last| last % 3) {
        0 => None,
        1 => Some("silver"),
        _ => Some("gold"),
    };
    let limiter = tiered().tier_of(tier_of);
    limiter.build().expect("the limits are valid")
}

fn move_to(limiter: &RateLimiter, n: u32, tier: u32) {
    let limiter = limiter.blocking();
    let moved = match tier {
        0 => limiter.clear_tier(key(n)),
        1 => limiter.set_tier(key(n), "silver"),
        _ => limiter.set_tier(key(n), "gold"),
    };
    moved.expect("there is room for all keys");
}

fn fill(limiter: &RateLimiter) {
    for n in 0..KEYS {
        limiter.blocking().check(key(n));
    }
    assert_eq!(limiter.memory_stats().keys, u64::from(KEYS));
}

/// Checks random keys for some time, and moves keys meanwhile. Returns nanoseconds per check, and how
/// many keys were moved.
fn run(
    limiter: &RateLimiter,
    rng: &mut fastrand::Rng,
    lasts: Duration,
    moves_per_second: u32,
) -> (f64, u64) {
    let start = Instant::now();
    let (mut checks, mut moves) = (0_u32, 0_u64);
    loop {
        for _ in 0..BLOCK {
            assert!(limiter.blocking().check(key(rng.u32(..KEYS))).is_allowed());
        }
        checks += BLOCK;
        let elapsed = start.elapsed();
        let due = elapsed.as_millis() * u128::from(moves_per_second) / 1_000;
        while u128::from(moves) < due {
            move_to(limiter, rng.u32(..KEYS), rng.u32(..3));
            moves += 1;
        }
        if elapsed >= lasts {
            let nanos = start.elapsed().as_secs_f64() * 1e9;
            return (nanos / f64::from(checks), moves);
        }
    }
}

/// Sixteen bytes, so that making the key costs little.
fn key(n: u32) -> [u8; 16] {
    let mut key = *b"customer-0000000";
    key[12..].copy_from_slice(&n.to_be_bytes());
    key
}

fn bytes_per_key(subject: &str) -> u64 {
    let limiter = if subject == "one limit" {
        one()
    } else {
        tiered().build().expect("the limits are valid")
    };
    let before = resident_bytes();
    if subject != "one limit" {
        for n in 0..KEYS {
            move_to(&limiter, n, n % 3);
        }
    }
    fill(&limiter);
    (resident_bytes() - before) / u64::from(KEYS)
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4_096
}
