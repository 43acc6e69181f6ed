//! Waiting for tokens: order, exact times, cancellation, bounds, in memory and over a real Redis.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use balde::{
    AcquireError, BadKey, BuildError, Clock, Decision, Limit, OnFailure, OpId, RateLimiter,
    RedisStore, Share, Wait,
};
use balde_core::{Command, State};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::redis_server::RedisServer;

fn limiter(limit: &str) -> RateLimiter {
    let builder = RateLimiter::builder().limit(limit);
    builder.clock(Clock::tokio()).build().unwrap()
}

fn in_redis(store: &RedisStore, limit: &str, on_failure: OnFailure) -> RateLimiter {
    let builder = RateLimiter::builder().name(limit).limit(limit);
    builder.redis(store, on_failure).build().unwrap()
}

/// Starts a request and lets it join its queue.
async fn spawn(
    limiter: &RateLimiter,
    key: &'static str,
    n: u64,
) -> JoinHandle<Result<Decision, AcquireError>> {
    let before = limiter.waiting();
    let limiter = limiter.clone();
    let waiting = limiter.clone();
    let task = tokio::spawn(async move { limiter.acquire(key, n).await });
    while waiting.waiting() == before && !task.is_finished() {
        tokio::task::yield_now().await;
    }
    task
}

fn ms(start: Instant) -> u128 {
    start.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_there_come_at_once_and_others_when_a_check_would_pass() {
    for (limit, n) in [
        ("10/s burst 5", 2),
        ("1000/s burst 30", 17),
        ("3/min burst 4 stepwise", 3),
        ("7/10s window", 6),
    ] {
        let limiter = limiter(limit);
        let capacity = limiter.limit().capacity();
        let start = Instant::now();
        limiter.acquire("k", capacity).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO, "{limit}");
        let promised = limiter.check_n("k", n).await.retry_after().unwrap();
        let granted = limiter.acquire("k", n).await.unwrap();
        assert!(granted.is_allowed() && granted.moved() == n, "{limit}");
        // Tokio's timers count whole milliseconds.
        let late = start.elapsed().checked_sub(promised).expect("not early");
        assert!(late < Duration::from_millis(1), "{limit}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_request_is_not_overtaken_by_small_ones() {
    let limiter = limiter("10/s");
    limiter.acquire("k", 10).await.unwrap();
    let start = Instant::now();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in [8, 1, 1, 5] {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            limiter.acquire("k", n).await.unwrap();
            order.lock().push((n, ms(start)));
        }));
        tokio::task::yield_now().await;
    }
    // Another key has its own queue.
    limiter.acquire("other", 10).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock(), [(8, 800), (1, 900), (1, 1_000), (5, 1_500)]);
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_blocks_nobody_and_loses_nothing() {
    let limiter = limiter("10/s");
    limiter.acquire("k", 10).await.unwrap();
    let start = Instant::now();
    let first = spawn(&limiter, "k", 10).await;
    let second = spawn(&limiter, "k", 2).await;
    let third = spawn(&limiter, "k", 1).await;
    assert_eq!(limiter.waiting(), 3);
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    second.await.unwrap().unwrap();
    assert_eq!(ms(start), 200);
    third.await.unwrap().unwrap();
    assert_eq!(ms(start), 300);
    assert_eq!(limiter.peek("k").await.unwrap().level(), 0);
}

/// A waker that remembers whether it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_grant_that_was_never_seen_are_given_back() {
    let limiter = limiter("10/s");
    limiter.acquire("k", 10).await.unwrap();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let mut unseen = Box::pin(limiter.acquire("k", 4));
    let mut context = Context::from_waker(&waker);
    assert!(unseen.as_mut().poll(&mut context).is_pending());
    let behind = spawn(&limiter, "k", 3).await;
    tokio::time::sleep(Duration::from_millis(401)).await;
    assert!(flag.0.load(Ordering::Acquire), "it has its tokens");
    assert_eq!(limiter.peek("k").await.unwrap().level(), 0);
    assert!(!behind.is_finished());
    drop(unseen);
    // Its four tokens are the bucket's again, and the next in line gets three of them.
    let start = Instant::now();
    behind.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(limiter.peek("k").await.unwrap().level(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_and_a_hopeless_one_not_waited_for() {
    let limiter = limiter("10/s");
    let within = |n, ms| limiter.acquire_within("k", n, Duration::from_millis(ms));
    limiter.acquire("k", 10).await.unwrap();
    let start = Instant::now();
    assert_eq!(within(3, 299).await, Err(AcquireError::TimedOut));
    assert_eq!(start.elapsed(), Duration::ZERO);
    // Exactly the promised time is enough.
    within(3, 300).await.unwrap();
    assert_eq!(ms(start), 300);
    // Behind somebody else it has to wait to know.
    let large = spawn(&limiter, "k", 10).await;
    let start = Instant::now();
    assert_eq!(within(1, 700).await, Err(AcquireError::TimedOut));
    assert_eq!(ms(start), 700);
    large.await.unwrap().unwrap();
    assert_eq!(ms(start), 1_000);
    assert_eq!(within(0, 0).await.unwrap().moved(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_fails_at_once_and_holds_up_nobody() {
    let limiter = limiter("10/s");
    let never = AcquireError::OverCapacity { capacity: 10 };
    assert_eq!(limiter.acquire("k", 11).await, Err(never));
    let empty = AcquireError::BadKey(BadKey::Empty);
    assert_eq!(limiter.acquire("", 1).await, Err(empty));

    // A limit that shrinks while they wait.
    limiter.acquire("k", 10).await.unwrap();
    let first = spawn(&limiter, "k", 8).await;
    let second = spawn(&limiter, "k", 1).await;
    limiter.set_limit("10/s burst 5").unwrap();
    let start = Instant::now();
    let never = AcquireError::OverCapacity { capacity: 5 };
    assert_eq!(first.await.unwrap(), Err(never));
    assert_eq!(start.elapsed(), Duration::ZERO);
    second.await.unwrap().unwrap();
    assert_eq!(ms(start), 100);
}

#[tokio::test(start_paused = true)]
async fn credits_and_faster_limits_are_seen_at_once() {
    let limiter = limiter("1/min burst 10");
    limiter.acquire("k", 10).await.unwrap();
    let start = Instant::now();
    let waiting = spawn(&limiter, "k", 2).await;
    limiter.credit("k", 2).await.unwrap();
    waiting.await.unwrap().unwrap();
    let waiting = spawn(&limiter, "k", 2).await;
    limiter.set_level("k", 7).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let waiting = spawn(&limiter, "k", 6).await;
    limiter.set_limit("10/s").unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(ms(start), 100);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiters_is_bounded() {
    let builder = RateLimiter::builder().limit("1/s").clock(Clock::tokio());
    let limiter = builder.waiters_max(2).build().unwrap();
    limiter.acquire("k", 1).await.unwrap();
    let _first = spawn(&limiter, "k", 1).await;
    let second = spawn(&limiter, "k", 1).await;
    let full = AcquireError::TooManyWaiters { waiters_max: 2 };
    assert_eq!(limiter.acquire("k", 1).await, Err(full));
    second.abort();
    second.await.unwrap_err();
    limiter.acquire("k", 1).await.unwrap();
    let none = RateLimiter::builder().limit("1/s").waiters_max(0).build();
    assert_eq!(none.unwrap_err(), BuildError::WaitersMax);
}

/// The core's bucket of one key, which grants the same requests one after the other.
struct Model {
    limit: Limit,
    state: Option<State>,
    now_us: u64,
}

impl Model {
    /// When the next request gets its tokens, if it came before.
    fn grant(&mut self, n: u64) -> u64 {
        let take = Command::Take { n };
        let mut decision = self.limit.apply(self.state, take, self.now_us);
        if let Wait::Us(us) = decision.wait() {
            self.now_us += us;
            decision = self.limit.apply(self.state, take, self.now_us);
        }
        assert!(decision.is_allowed());
        self.state = decision.state();
        self.now_us
    }
}

const WAITERS: usize = 10_000;
const KEYS: usize = 1_000;

/// Every third is cancelled: some before they are served, some at the time they are served.
fn is_cancelled(i: usize) -> bool {
    i % 3 == 1
}

fn tokens(i: usize) -> u64 {
    1 + (i as u64 * 7) % 5
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_on_a_thousand_keys_are_served_in_order_at_the_exact_times() {
    let limiter = limiter("10/s burst 5");
    for key in 0..KEYS {
        limiter.acquire(format!("{key}"), 5).await.unwrap();
    }
    let start = Instant::now();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..WAITERS {
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let key = format!("{}", i % KEYS);
            let decision = limiter.acquire(key, tokens(i)).await.unwrap();
            assert_eq!(decision.moved(), tokens(i));
            served.lock().push((i, start.elapsed()));
        }));
    }
    while limiter.waiting() < WAITERS {
        tokio::task::yield_now().await;
    }
    for (i, task) in tasks.iter().enumerate() {
        if is_cancelled(i) {
            task.abort();
        }
    }
    let mut lost = 0;
    for (i, task) in tasks.into_iter().enumerate() {
        let result = task.await;
        assert_eq!(result.is_err(), is_cancelled(i));
        lost += usize::from(result.is_err());
    }
    assert_eq!(lost, WAITERS / 3);
    assert_eq!(limiter.waiting(), 0);

    let mut models: HashMap<usize, (Model, usize)> = HashMap::new();
    let served = served.lock();
    assert_eq!(served.len(), WAITERS - lost);
    for (i, at) in served.iter() {
        let (model, last) = models.entry(i % KEYS).or_insert_with(|| {
            let limit: Limit = "10/s burst 5".parse().unwrap();
            let state = limit.apply(None, Command::Take { n: 5 }, 0).state();
            let model = Model {
                limit,
                state,
                now_us: 0,
            };
            (model, 0)
        });
        assert!(*last <= *i, "{i} after {last}");
        *last = *i;
        let expected = Duration::from_micros(model.grant(tokens(*i)));
        assert_eq!(*at, expected, "request {i}");
    }
    let total_ms = ms(start);
    println!(
        "{} served, {lost} cancelled, {total_ms} ms of virtual time",
        served.len()
    );
}

#[tokio::test(start_paused = true)]
async fn cancelled_at_every_moment_no_token_is_lost_or_made() {
    let mut rng = fastrand::Rng::with_seed(7);
    let limiter = limiter("100/s burst 20");
    limiter.acquire("k", 20).await.unwrap();
    let start = Instant::now();
    let granted = Arc::new(AtomicUsize::new(0));
    for _ in 0..300 {
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (limiter, granted) = (limiter.clone(), Arc::clone(&granted));
                let n = rng.u64(1..=6);
                tokio::spawn(async move {
                    limiter.acquire("k", n).await.unwrap();
                    granted.fetch_add(usize::try_from(n).unwrap(), Ordering::Relaxed);
                })
            })
            .collect();
        for task in &tasks {
            if rng.bool() {
                tokio::time::sleep(Duration::from_millis(rng.u64(0..40))).await;
                task.abort();
            }
        }
        for task in tasks {
            let _cancelled = task.await;
        }
    }
    // Everything that was refilled is granted, or still there; the bucket never overflowed, because
    // somebody always waited.
    let refilled = u64::try_from(ms(start)).unwrap() / 10;
    let level = limiter.peek("k").await.unwrap().level().unsigned_abs();
    let granted = granted.load(Ordering::Relaxed) as u64;
    assert!(
        granted + level <= refilled,
        "{granted} + {level} > {refilled}"
    );
    println!("{granted} granted, {level} left of {refilled}");
}

#[test]
fn threads_wait_too_with_and_without_a_runtime() {
    let limiter = RateLimiter::new("100/s burst 10").unwrap();
    limiter.blocking().acquire("k", 10).unwrap();
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| limiter.blocking().acquire("k", 5).unwrap());
        }
    });
    assert!(started.elapsed() >= Duration::from_millis(199));
    let never = limiter.blocking().acquire_within("k", 5, Duration::ZERO);
    assert_eq!(never, Err(AcquireError::TimedOut));

    // Futures that are polled by hand, without a runtime.
    let waker = Waker::from(Arc::new(Flag::default()));
    let mut polled = pin!(limiter.acquire("k", 5));
    let mut context = Context::from_waker(&waker);
    while polled.as_mut().poll(&mut context).is_pending() {
        std::thread::yield_now();
    }
}

#[test]
fn waiters_outlive_the_runtime_that_served_them() {
    let limiter = RateLimiter::new("20/s burst 10").unwrap();
    limiter.blocking().acquire("k", 10).unwrap();
    let build = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (first, second) = (build(), build());
    let theirs = limiter.clone();
    first.spawn(async move { theirs.acquire("k", 10).await });
    while limiter.waiting() < 1 {
        std::thread::yield_now();
    }
    let ours = limiter.clone();
    let waiting = second.spawn(async move { ours.acquire("k", 2).await });
    while limiter.waiting() < 2 {
        std::thread::yield_now();
    }
    first.shutdown_timeout(Duration::from_secs(10));
    assert!(second.block_on(waiting).unwrap().is_ok());
    assert_eq!(limiter.waiting(), 0);
}

/// Repeats a call that times out because the machine is busy.
async fn surely(call: impl AsyncFn() -> Result<Decision, balde::Error>) -> Decision {
    for _ in 0..200 {
        if let Ok(decision) = call().await {
            return decision;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store does not answer");
}

// One thread runs the tasks in the order in which they were woken.
#[tokio::test]
async fn ten_thousand_waiters_over_redis_a_third_cancelled() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisStore::builder()
        .address(server.url())
        .timeout(Duration::from_millis(100))
        .build()
        .unwrap();
    // The buckets do not refill while the test runs: credits serve the queues.
    let limiter = in_redis(&store, "1/day burst 60", OnFailure::Deny);
    for key in 0..KEYS {
        let (key, id) = (format!("{key}"), OpId::random());
        surely(async || limiter.charge_once(&key, 60, &id).await).await;
    }
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..WAITERS {
        let (limiter_, served) = (limiter.clone(), Arc::clone(&served));
        let mut acquiring: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let key = format!("{}", i % KEYS);
            limiter_.acquire(key, tokens(i)).await
        });
        // The first poll joins the queue, so that the order is known.
        let waker = Waker::noop();
        let polled = acquiring.as_mut().poll(&mut Context::from_waker(waker));
        assert!(matches!(polled, Poll::Pending));
        tasks.push(tokio::spawn(async move {
            let decision: Result<Decision, AcquireError> = acquiring.await;
            assert_eq!(decision.unwrap().moved(), tokens(i));
            served.lock().push(i);
        }));
    }
    assert_eq!(limiter.waiting(), WAITERS);
    // Half of them are cancelled before tokens come, half while they come.
    for (i, task) in tasks.iter().enumerate() {
        if is_cancelled(i) && i % 2 == 0 {
            task.abort();
        }
    }
    let crediting = async {
        for key in 0..KEYS {
            let (key, id) = (format!("{key}"), OpId::random());
            surely(async || limiter.credit_once(&key, 60, &id).await).await;
        }
    };
    let cancelling = async {
        for (i, task) in tasks.iter().enumerate() {
            if is_cancelled(i) && i % 2 == 1 {
                task.abort();
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::join!(crediting, cancelling);
    let mut cancelled = Vec::new();
    for (i, task) in tasks.into_iter().enumerate() {
        let result = task.await;
        if result.is_err() {
            assert!(is_cancelled(i), "{i} is lost");
            cancelled.push(i);
        }
    }
    assert_eq!(limiter.waiting(), 0);
    let served = std::mem::take(&mut *served.lock());
    assert_eq!(served.len() + cancelled.len(), WAITERS);
    let mut last = [0; KEYS];
    let mut taken = [0; KEYS];
    for i in &served {
        let last = &mut last[i % KEYS];
        assert!(*last <= *i, "{i} after {last}");
        *last = *i;
        taken[i % KEYS] += tokens(*i);
    }
    println!("{} served, {} cancelled", served.len(), cancelled.len());
    // Every token was handed out, or is in its bucket. Those of requests that were cancelled when the
    // store had granted them are given back in the background.
    let deadline = Instant::now() + Duration::from_secs(20);
    for (key, taken) in taken.into_iter().enumerate() {
        loop {
            let name = format!("{key}");
            let level = surely(async || limiter.peek(&name).await).await.level();
            if level.unsigned_abs() + taken == 60 {
                break;
            }
            assert!(level.unsigned_abs() + taken < 60, "key {key}: minted");
            assert!(
                Instant::now() < deadline,
                "key {key}: {taken} taken, {level} left of 60"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_the_times_are_those_of_the_server() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let builder = RedisStore::builder().address(server.url());
    let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
    let limiter = in_redis(&store, "200/s burst 10", OnFailure::Deny);
    // Before the bucket is emptied: on a busy machine it refills meanwhile.
    let start = Instant::now();
    limiter.acquire("k", 10).await.unwrap();
    let calls = store.stats().calls_total;
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("k", 1).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // Law 1: a hundred tokens at 200/s take half a second at least, and what came is what was taken.
    assert!(
        start.elapsed() >= Duration::from_millis(495),
        "{:?}",
        start.elapsed()
    );
    let calls = store.stats().calls_total - calls;
    assert!(
        calls <= 250,
        "{calls} calls for 100 grants: that is polling"
    );
    println!("{calls} calls for 100 grants in {:?}", start.elapsed());

    let never = AcquireError::OverCapacity { capacity: 10 };
    assert_eq!(limiter.acquire("k", 11).await, Err(never));
    let hopeless = limiter
        .acquire_within("k", 10, Duration::from_millis(5))
        .await;
    assert_eq!(hopeless, Err(AcquireError::TimedOut));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_the_failure_policy_decides_for_those_who_wait() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    server.kill();
    let store = RedisStore::new(server.url()).unwrap();
    let deny = in_redis(&store, "10/s", OnFailure::Deny);
    let soon = Duration::from_millis(200);
    let denied = deny.acquire_within("k", 1, soon).await;
    assert_eq!(denied, Err(AcquireError::TimedOut));
    let patient = spawn(&deny, "k", 1).await;
    let allow = in_redis(&store, "10/s burst 9", OnFailure::Allow);
    assert!(allow.acquire("k", 9).await.unwrap().is_fallback());
    let share = Share::one_in(1);
    let local = in_redis(&store, "10/s burst 2", OnFailure::Local { share });
    let start = Instant::now();
    for _ in 0..4 {
        assert!(local.acquire("k", 1).await.unwrap().is_fallback());
    }
    assert!(start.elapsed() >= Duration::from_millis(199));
    // Whoever waits gets tokens when Redis is back.
    assert!(!patient.is_finished());
    server.restart();
    assert!(!patient.await.unwrap().unwrap().is_fallback());
}
