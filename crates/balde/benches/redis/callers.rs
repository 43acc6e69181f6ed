//! Tasks that each ask, wait for the answer, and ask again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use balde::RateLimiter;

/// A caller whose answers are all at hand would otherwise never let another one run.
const YIELD_EVERY: usize = 64;

/// What came of asking for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// As many callers as there are answers to be waited for at a time, over so many keys.
pub(crate) async fn measure(
    limiter: &RateLimiter,
    callers: usize,
    keys: usize,
    runs: Duration,
) -> Figures {
    let is_over = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|n| {
            let random = fastrand::Rng::with_seed(n as u64);
            tokio::spawn(call(limiter.clone(), random, keys, Arc::clone(&is_over)))
        })
        .collect();
    tokio::time::sleep(runs).await;
    is_over.store(true, Ordering::Relaxed);
    let mut times_ns = Vec::new();
    for task in tasks {
        times_ns.extend(task.await.expect("no caller panics"));
    }
    let elapsed = started.elapsed();
    times_ns.sort_unstable();
    let at = |percent: usize| {
        let place = (times_ns.len() * percent / 100).min(times_ns.len() - 1);
        f64::from(times_ns[place]) / 1e3
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of calls fits")]
    let calls = times_ns.len() as f64;
    Figures {
        per_second: calls / elapsed.as_secs_f64(),
        p50_us: at(50),
        p99_us: at(99),
    }
}

async fn call(
    limiter: RateLimiter,
    mut random: fastrand::Rng,
    keys: usize,
    is_over: Arc<AtomicBool>,
) -> Vec<u32> {
    let mut times_ns = Vec::with_capacity(1 << 12);
    let mut key = *b"user-000000000000";
    while !is_over.load(Ordering::Relaxed) {
        write_number(&mut key[5..], random.usize(..keys));
        let began = Instant::now();
        let decision = limiter.check(key).await;
        times_ns.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
        assert!(
            decision.is_allowed() && !decision.is_fallback(),
            "{decision:?}"
        );
        if times_ns.len().is_multiple_of(YIELD_EVERY) {
            tokio::task::yield_now().await;
        }
    }
    times_ns
}

/// Twelve digits, as redis-benchmark writes them.
fn write_number(digits: &mut [u8], mut number: usize) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}
