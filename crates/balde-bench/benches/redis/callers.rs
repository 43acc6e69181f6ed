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
    /// Decisions that did not come from the store, because the machine stalled for longer than a
    /// call may take. They count for nothing else.
    pub(crate) fallbacks: usize,
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
    let mut fallbacks = 0;
    for task in tasks {
        let (times, failed) = task.await.expect("no caller panics");
        times_ns.extend(times);
        fallbacks += failed;
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
        fallbacks,
    }
}

async fn call(
    limiter: RateLimiter,
    mut random: fastrand::Rng,
    keys: usize,
    is_over: Arc<AtomicBool>,
) -> (Vec<u32>, usize) {
    let mut times_ns = Vec::with_capacity(1 << 12);
    let mut fallbacks = 0;
    let mut key = *b"user-000000000000";
    while !is_over.load(Ordering::Relaxed) {
        write_number(&mut key[5..], random.usize(..keys));
        let began = Instant::now();
        let decision = limiter.check(key).await;
        let took = began.elapsed();
        if decision.is_fallback() {
            fallbacks += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        assert!(decision.is_allowed(), "{decision:?}");
        times_ns.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        if times_ns.len().is_multiple_of(YIELD_EVERY) {
            tokio::task::yield_now().await;
        }
    }
    (times_ns, fallbacks)
}

/// Twelve digits, as redis-benchmark writes them.
fn write_number(digits: &mut [u8], mut number: usize) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}
