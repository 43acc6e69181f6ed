//! A fixed sequence of decisions in memory, for counting instructions (`scripts/count-instructions.sh`):
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null fixed_checks check 100000`
//!
//! The first argument is `check`, `check_all` or `layer`. The difference between two counts of
//! decisions, divided by the difference of the counts, is the cost of one decision, without the start.

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use balde::http::RateLimitLayer;
use balde::{Clock, ManualClock, RateLimiter, check_all_blocking};
use http::{Request, Response};
use tower::{Layer, Service, service_fn};

const KEYS: usize = 1_000;

/// No bucket is ever full again or empty.
const LIMIT: &str = "1/s burst 100000";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let count: usize = arguments.next().unwrap_or_default().parse()?;
    match what.as_str() {
        "check" => check(count),
        "check_all" => check_all(count),
        "layer" => layer(count),
        _ => Err("the first argument must be check, check_all or layer".into()),
    }
}

fn limiter(name: &str) -> Result<RateLimiter, Box<dyn Error>> {
    let clock = Clock::manual(&ManualClock::new());
    let builder = RateLimiter::builder().name(name).limit(LIMIT);
    Ok(builder.clock(clock).build()?)
}

fn check(count: usize) -> Result<(), Box<dyn Error>> {
    let limiter = limiter("one")?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("caller-{key}")).collect();
    for number in 0..count {
        let decision = limiter.blocking().check(&keys[number % KEYS]);
        assert!(black_box(decision).is_allowed());
    }
    Ok(())
}

fn check_all(count: usize) -> Result<(), Box<dyn Error>> {
    let (one, other) = (limiter("one")?, limiter("other")?);
    let keys: Vec<String> = (0..KEYS).map(|key| format!("caller-{key}")).collect();
    for number in 0..count {
        let key = &keys[number % KEYS];
        let decision = check_all_blocking(&[one.request(key), other.request(key)]);
        assert!(black_box(decision).is_allowed());
    }
    Ok(())
}

fn layer(count: usize) -> Result<(), Box<dyn Error>> {
    let answer =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let mut service = RateLimitLayer::new(limiter("one")?).layer(answer);
    let mut context = Context::from_waker(Waker::noop());
    for number in 0..count {
        let [high, low] = u16::try_from(number % KEYS)?.to_be_bytes();
        let peer = SocketAddr::from(([192, 0, high, low], 4_000));
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = match pin!(service.call(request)).poll(&mut context) {
            Poll::Ready(response) => response?,
            Poll::Pending => return Err("nothing waits in memory".into()),
        };
        assert!(black_box(response).status().is_success());
    }
    Ok(())
}
