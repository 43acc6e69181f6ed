//! What becomes of decisions while Redis is unwell, told over real servers that are killed, frozen,
//! filled, demoted and cut off under load.
//!
//! | File | Stories |
//! |--|--|
//! | `server` | one server: killed, frozen, its scripts flushed, full, read-only |
//! | `link` | a way to it that is slow, lossy, cut, reset, broken off or a black hole |
//! | `limits` | a server at `maxclients`, and servers that answer nonsense |
//! | `cluster` | a primary killed, its replica promoted |
//! | `leaks` | a hundred deaths, and nothing left behind |
//! | `load` | the callers, and what they saw |
//!
//! In each, callers of every failure policy keep asking, and afterwards:
//!
//! | Promise | Asserted, on machines that have other things to do, too |
//! |--|--|
//! | no call takes longer than its timeout, 100 ms at most | plus 5 s until its task runs again |
//! | while the breaker is open, 99 of 100 calls take less than 1 ms | less than 1 s |
//! | a second after the fault decisions come from Redis | 20 s, unless a story says why not |
//! | each decision names the failure that it was | the same |
//! | a fallback is what its policy says, and consumes nothing | the same, by counting tokens |
//! | nothing panics | the same, in any thread |
//!
//! What was measured is printed. Stories take turns: they measure time.

#[path = "../support/chaos_proxy.rs"]
mod chaos_proxy;
mod cluster;
mod leaks;
mod limits;
mod link;
mod load;
#[path = "../support/redis_cluster.rs"]
mod redis_cluster;
#[expect(dead_code, reason = "an address is enough here")]
#[path = "../support/redis_server.rs"]
mod redis_server;
mod server;

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use balde::{Leases, OnFailure, RateLimiter, RedisBuilder, RedisStore, Share};
use parking_lot::Mutex;

/// Nearly the longest timeout there is, so that a slow machine is not taken for a slow store. The
/// longest would be prolonged by `BALDE_TEST_PATIENT_REDIS`.
const TIMEOUT: Duration = balde::REDIS_TIMEOUT_MAX.saturating_sub(Duration::from_millis(1));
const CALL_WITHIN: Duration = TIMEOUT.saturating_add(Duration::from_secs(5));
const OPEN_P99_WITHIN: Duration = Duration::from_secs(1);
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// So slow to refill that what is gone from it is what was taken.
const LIMIT: &str = "1/h burst 1000000";
const CAPACITY: i64 = 1_000_000;
/// The part of it that one process may grant by itself: ten tokens.
const LOCAL_ONE_IN: u32 = 100_000;
const LOCAL_TOKENS: usize = 10;

/// The part of it that may be out on lease: a hundred tokens.
const BLOCK_ONE_IN: u32 = 10_000;

static TURN: Mutex<()> = Mutex::new(());
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// How a limiter asks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// One call per decision.
    Plain,
    /// Blocks of tokens, taken ahead.
    Leased,
}

fn store(address: impl Into<String>) -> RedisStore {
    with_defaults(RedisStore::builder().address(address))
}

fn with_defaults(builder: RedisBuilder) -> RedisStore {
    builder.timeout(TIMEOUT).build().expect("a store")
}

fn limiter(store: &RedisStore, mode: Mode, on_failure: OnFailure) -> RateLimiter {
    let builder = RateLimiter::builder()
        .name("faults")
        .limit(LIMIT)
        .redis(store, on_failure);
    let builder = match mode {
        Mode::Plain => builder,
        Mode::Leased => builder.leases(Leases::new().share(Share::one_in(BLOCK_ONE_IN))),
    };
    builder.build().expect("a limiter")
}

/// Tells a story in its turn, and listens for panics.
fn story(tell: impl Future<Output = ()>) {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            usual(info);
        }));
    });
    let _turn = TURN.lock();
    let before = PANICS.load(Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(tell);
    drop(runtime);
    assert_eq!(PANICS.load(Ordering::Relaxed), before, "somebody panicked");
}

async fn for_a_while(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Looks again and again, for as long as something may reasonably take.
async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < within, "not within {within:?}: {what}");
        for_a_while(2).await;
    }
}

/// A look at a bucket. On a busy machine a call may time out, so it is asked again.
async fn look(limiter: &RateLimiter, key: &str) -> balde::Decision {
    let started = Instant::now();
    loop {
        match limiter.peek(key).await {
            Ok(decision) => return decision,
            Err(error) => assert!(started.elapsed() < BACK_WITHIN, "no answer: {error}"),
        }
        for_a_while(2).await;
    }
}
