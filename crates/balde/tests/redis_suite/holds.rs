//! Holds in Redis: what other processes see of them, and what becomes of them without their process.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use balde::store::redis::script::decode_stored;
use balde::{Clock, Hold, Holds, ManualClock, OnExpiry, OnFailure, RateLimiter, RedisStore};
use redis::{Client, Commands as _};
use tokio::runtime::Runtime;

use crate::redis_server::RedisServer;

const START_US: u64 = 1_800_000_000_000_000;
const TTL: Duration = Duration::from_secs(1);

/// A process with its own runtime, which is killed by shutting the runtime down.
struct Process {
    runtime: Runtime,
    limiter: RateLimiter,
}

impl Process {
    fn start(server: &RedisServer, clock: &ManualClock, holds: Holds) -> Self {
        let runtime = Runtime::new().unwrap();
        let inside = runtime.enter();
        let builder = RedisStore::builder().address(server.url());
        let store = builder.timeout(Duration::from_millis(100)).build().unwrap();
        let builder = RateLimiter::builder().name("held").limit("6/min burst 100");
        let builder = builder.clock(Clock::manual(clock)).holds(holds);
        let limiter = builder.redis(&store, OnFailure::Deny).build().unwrap();
        drop(inside);
        Self { runtime, limiter }
    }

    fn hold(&self, n: u64, needed: u64) -> Option<Hold> {
        let request = self.limiter.request_n("k", n).needing(needed);
        self.runtime.block_on(Hold::take(&[request])).ok()
    }

    /// The available tokens, and those that are held.
    fn look(&self) -> (i64, u64) {
        let found = self.runtime.block_on(self.limiter.peek("k")).unwrap();
        (found.level(), found.held())
    }

    /// Nothing of the process runs on; not even its holds are settled.
    fn kill(self, hold: Option<Hold>) {
        std::mem::forget(hold);
        self.runtime.shutdown_background();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_process_sees_the_sum_of_what_all_hold() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::at_us(START_US);
    let holds = Holds::new().ttl(Duration::from_secs(3_600));
    let [a, b] = [(); 2].map(|()| Process::start(&server, &clock, holds));
    let first = a.hold(30, 1).unwrap();
    let second = b.hold(60, 1).unwrap();
    assert_eq!((a.look(), b.look()), ((10, 90), (10, 90)));
    assert!(a.hold(1, 11).is_none(), "ten are available");

    // The bucket is full, so it does not refill; a settlement is a charge at its moment.
    clock.advance(Duration::from_secs(60));
    a.runtime.block_on(first.settle(40));
    assert_eq!(b.look(), (0, 60));
    clock.advance(Duration::from_secs(60));
    b.runtime.block_on(second.settle(0));
    assert_eq!((a.look(), b.look()), ((66, 0), (66, 0)));
}

#[test]
fn what_a_killed_process_held_is_charged_when_it_expires_or_given_back() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::at_us(START_US);
    for (on_expiry, level) in [(OnExpiry::Charge, 79), (OnExpiry::GiveBack, 100)] {
        let holds = Holds::new().ttl(TTL).on_expiry(on_expiry);
        let other = Process::start(&server, &clock, holds);
        other.runtime.block_on(other.limiter.forget("k")).unwrap();
        let killed = Process::start(&server, &clock, holds);
        let hold = killed.hold(22, 1);
        killed.kill(hold);
        clock.advance(TTL / 2);
        assert_eq!(other.look(), (78, 22));
        // Charged as of its expiry, however late that is noticed: ten seconds refill one token.
        clock.advance(TTL / 2 + Duration::from_secs(10));
        assert_eq!(other.look(), (level, 0));
    }
}

#[test]
fn a_running_process_renews_what_it_holds() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::at_us(START_US);
    let process = Process::start(&server, &clock, Holds::new().ttl(TTL));
    let hold = process.hold(10, 1).unwrap();
    let mut redis = Client::open(server.url()).unwrap();
    let name: String = redis.keys::<_, Vec<String>>("*").unwrap().remove(0);
    let mut expires_us = || {
        let stored: Vec<u8> = redis.get(&name).unwrap();
        decode_stored(&stored).unwrap().held[0].1.expires_us
    };
    for _ in 0..3 {
        clock.advance(TTL / 2);
        let renewed_us = clock.now_us() + 1_000_000;
        wait_until("the hold is renewed", || expires_us() == renewed_us);
    }
    assert_eq!(process.look(), (90, 10));
    process.runtime.block_on(hold.settle(1));
    assert_eq!(process.look(), (99, 0));
}

#[test]
fn a_settlement_after_the_expiry_charges_what_the_price_exceeds_it_by() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    for (on_expiry, price, level) in [
        (OnExpiry::Charge, 4, 90),
        (OnExpiry::Charge, 12, 88),
        (OnExpiry::GiveBack, 4, 96),
    ] {
        let clock = ManualClock::at_us(START_US);
        let holds = Holds::new().ttl(Duration::from_secs(3_600));
        let process = Process::start(&server, &clock, holds.on_expiry(on_expiry));
        let forgetting = process.limiter.forget("k");
        process.runtime.block_on(forgetting).unwrap();
        let hold = process.hold(10, 1).unwrap();
        clock.advance(Duration::from_secs(3_600));
        process.runtime.block_on(hold.settle(price));
        assert_eq!(process.look(), (level, 0), "{on_expiry:?} {price}");
    }
}

#[test]
fn a_caller_that_goes_away_holds_nothing() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::at_us(START_US);
    let process = Process::start(&server, &clock, Holds::new());
    {
        let _inside = process.runtime.enter();
        let requests = [process.limiter.request_n("k", 10)];
        let mut taking = pin!(Hold::take(&requests));
        let polled = taking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let mut was_held = false;
    wait_until("nothing is held", || {
        let (level, held) = process.look();
        was_held |= held > 0;
        held == 0 && level == 100
    });
    // The call was sent: its tokens were held, or are not held yet.
    assert!(process.hold(100, 100).is_some() || was_held);
}

#[test]
fn without_await_it_is_the_same() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let clock = ManualClock::at_us(START_US);
    let process = Process::start(&server, &clock, Holds::new());
    let request = process.limiter.request_n("k", 30).needing(1);
    let hold = Hold::take_blocking(&[request]).unwrap();
    assert_eq!(process.look(), (70, 30));
    assert_eq!(hold.settle_blocking(7)[0].level(), 93);
    drop(Hold::take_blocking(&[request]).unwrap());
    wait_until("the dropped hold is charged", || process.look() == (63, 0));
}
