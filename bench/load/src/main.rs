//! Checks at times that are fixed beforehand, and how long after their time they were decided: an open model, in
//! which a slow answer delays nobody else's request and hides no other slow answer. `scripts/load.sh` runs it.
//!
//! Arguments: the address of Redis, seconds per row.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use balde::{Leases, OnFailure, RateLimiter, RedisStore, Share};
use fastrand::Rng;
use tokio::runtime::Runtime;

const KEYS: usize = 1_000;
/// Some keys are refused, most are not.
const LIMIT: &str = "20/s burst 50";
/// 50,000 a minute are 833 a second.
const RATE_MEMORY: u32 = 5_000;
const RATE_REDIS: u32 = 1_700;
const BURST: usize = 100;

#[derive(Clone, Copy)]
enum Arrivals {
    Steady,
    Poisson,
    Bursty,
}

#[derive(Clone, Copy)]
enum Spread {
    Uniform,
    Zipf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("the address of Redis")?;
    let seconds: u64 = arguments.next().unwrap_or_default().parse()?;
    let span = Duration::from_secs(seconds);
    let runtime = Runtime::new()?;
    let store = {
        let _inside = runtime.enter();
        let builder = RedisStore::builder().address(address);
        builder.timeout(Duration::from_millis(100)).build()?
    };
    let on_failure = || OnFailure::Local {
        share: Share::percent(50),
    };
    let memory = RateLimiter::builder().name("memory").limit(LIMIT).build()?;
    let redis = RateLimiter::builder().name("redis").limit(LIMIT);
    let redis = redis.redis(&store, on_failure()).build()?;
    let leased = RateLimiter::builder().name("leased").limit(LIMIT);
    let leased = leased.redis(&store, on_failure()).leases(Leases::new());
    let leased = leased.build()?;
    runtime.block_on(redis.check("warm"));

    println!(
        "| Store | Keys | Arrivals | Checks/min | p50 µs | p95 µs | p99 µs | p99.9 µs | Allowed | Fallbacks |"
    );
    println!("|--|--|--|--|--|--|--|--|--|--|");
    // How late this machine wakes the sender up: what no limiter could beat.
    for (arrivals, model) in [
        ("steady", Arrivals::Steady),
        ("bursts of 100", Arrivals::Bursty),
    ] {
        let due = plan(model, RATE_MEMORY, span);
        let row = run(&runtime, None, &due, Spread::Uniform, true);
        println!("| nothing is checked | | {arrivals} | {row}");
    }
    for (name, limiter, rate) in [
        ("memory", &memory, RATE_MEMORY),
        ("Redis", &redis, RATE_REDIS),
        ("Redis, leases", &leased, RATE_REDIS),
    ] {
        for (keys, spread) in [("uniform", Spread::Uniform), ("Zipf", Spread::Zipf)] {
            for (arrivals, model) in [
                ("steady", Arrivals::Steady),
                ("Poisson", Arrivals::Poisson),
                ("bursts of 100", Arrivals::Bursty),
            ] {
                let due = plan(model, rate, span);
                let row = run(&runtime, Some(limiter), &due, spread, name == "memory");
                println!("| {name} | {keys} | {arrivals} | {row}");
            }
        }
    }
    println!();
    println!("| Store | Callers | Checks/min at most |");
    println!("|--|--|--|");
    println!(
        "| memory | 1 thread | {} |",
        grouped(most_in_memory(&memory, span))
    );
    let most = most_in_redis(&runtime, &redis, span);
    println!("| Redis | 64 tasks | {} |", grouped(most));
    Ok(())
}

/// When each check is due, from the beginning.
fn plan(arrivals: Arrivals, rate: u32, span: Duration) -> Vec<Duration> {
    let mut random = Rng::with_seed(1);
    let gap = 1.0 / f64::from(rate);
    let mut at = 0.0;
    let mut due = Vec::new();
    while at < span.as_secs_f64() {
        match arrivals {
            Arrivals::Steady => at += gap,
            Arrivals::Poisson => at -= (1.0 - random.f64()).ln() * gap,
            Arrivals::Bursty => {
                if due.len() % BURST == 0 {
                    at += gap * 100.0;
                }
            }
        }
        due.push(Duration::from_secs_f64(at));
    }
    due
}

fn key(random: &mut Rng, spread: Spread) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of a key"
    )]
    let number = match spread {
        Spread::Uniform => random.usize(..KEYS),
        Spread::Zipf => (KEYS as f64).powf(random.f64()) as usize,
    };
    format!("user-{number}")
}

/// Sends the checks, and returns the rest of the table's row.
fn run(
    runtime: &Runtime,
    limiter: Option<&RateLimiter>,
    due: &[Duration],
    spread: Spread,
    is_memory: bool,
) -> String {
    let mut random = Rng::with_seed(2);
    let (sender, receiver) = mpsc::channel();
    let begun = Instant::now() + Duration::from_millis(20);
    for at in due {
        let key = key(&mut random, spread);
        let at = begun + *at;
        if let Some(wait) = at.checked_duration_since(Instant::now()) {
            thread::sleep(wait);
        }
        let Some(limiter) = limiter else {
            let _ = sender.send((at.elapsed(), true, false));
            continue;
        };
        if is_memory {
            let decision = limiter.blocking().check(&key);
            let _ = sender.send((at.elapsed(), decision.is_allowed(), false));
            continue;
        }
        let (limiter, sender) = (limiter.clone(), sender.clone());
        runtime.spawn(async move {
            let decision = limiter.check(&key).await;
            let _ = sender.send((at.elapsed(), decision.is_allowed(), decision.is_fallback()));
        });
    }
    drop(sender);
    let answers: Vec<_> = receiver.into_iter().collect();
    let took = begun.elapsed().as_secs_f64();
    let mut latencies: Vec<Duration> = answers.iter().map(|answer| answer.0).collect();
    latencies.sort_unstable();
    let quantile = |permille: usize| {
        let index = (latencies.len() * permille / 1_000).min(latencies.len() - 1);
        latencies[index].as_micros()
    };
    let allowed = answers.iter().filter(|answer| answer.1).count();
    let fallbacks = answers.iter().filter(|answer| answer.2).count();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "figures for people"
    )]
    let a_minute = (answers.len() as f64 / took * 60.0) as u64;
    format!(
        "{} | {} | {} | {} | {} | {} % | {fallbacks} |",
        grouped(a_minute),
        quantile(500),
        quantile(950),
        quantile(990),
        quantile(999),
        allowed * 100 / answers.len(),
    )
}

/// Checks a minute of one thread that does nothing else.
fn most_in_memory(limiter: &RateLimiter, span: Duration) -> u64 {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user-{number}")).collect();
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < span {
        for key in &keys {
            limiter.blocking().check(key);
        }
        count += KEYS as u64;
    }
    count * 60_000 / u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Checks a minute of 64 tasks that ask as fast as they are answered.
fn most_in_redis(runtime: &Runtime, limiter: &RateLimiter, span: Duration) -> u64 {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..64_u64)
        .map(|seed| {
            let limiter = limiter.clone();
            runtime.spawn(async move {
                let mut random = Rng::with_seed(seed);
                let mut count = 0;
                while begun.elapsed() < span {
                    let key = key(&mut random, Spread::Uniform);
                    let decision = limiter.check(&key).await;
                    count += u64::from(!decision.is_fallback());
                }
                count
            })
        })
        .collect();
    let count: u64 = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).unwrap_or_default())
        .sum();
    count * 60_000 / u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
