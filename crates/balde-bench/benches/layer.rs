//! What the layer adds to a request, beside `tower_governor` in the same run:
//! `cargo bench -p balde-bench --bench layer` (`-- --quick` for a glance,
//! `-- --only NAME` for a profiler).
//!
//! The service answers at once, so what is measured is the layer: who is asking, the decision, the
//! fields of the answer. Requests are made beforehand; each subject gets the same ones in turn.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use balde::http::headers::HeaderOptions;
use balde::http::{LimitRule, RateLimitLayer};
use balde::{Clock, RateLimiter};
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use balde_bench::{self as report, median};

/// Never reached, so that every request is let in; and no bucket is full again by the next, not
/// even where a profiler makes all of it fifty times as slow.
const LIMIT: &str = "1/s burst 3900";

/// Every bucket is full again by the next request, as those of modest callers are: the store has
/// mostly forgotten them by then.
const REFILLED: &str = "1000000/s burst 500";
const CALLERS: u32 = 1_000;

/// Requests in a round.
const REQUESTS: u32 = 5_000;

/// What is compared, ours and theirs.
const PAIRS: [(&str, &str); 3] = [
    ("balde, no fields", "tower_governor, no fields"),
    ("balde, X-RateLimit-* only", "tower_governor, its fields"),
    ("balde", "tower_governor, its fields"),
];

/// What more than one plain limit costs, as a multiple of what that adds.
const MORE: [&str; 4] = [
    "balde, cost by a function",
    "balde, settled by outcome",
    "balde, two limits",
    "balde, three limits",
];

/// What to make of it. Instructions are callgrind's, with `--only` and
/// `--toggle-collect='*subject*closure*'`.
const READING: &str = "The goals were at most 2 µs, and at most 0.9 of what tower_governor adds \
    with its fields. The first is met by a wide margin. The second is missed: balde's three \
    fields cost 0.87 of the other's two, and all five 1.11, on a machine that was busy with \
    other tests (0.95 to 1.02 before holds became part of the bucket). Two limits were to cost \
    at most twice one, and cost 2.55 times. By the profile, what balde has more of is a key \
    that is text, the same in every store; a limit that can be changed at any time and refills \
    in one of three ways, which every check looks at; and a decision of 128 bytes.";

fn main() {
    let is_quick = std::env::args().any(|arg| arg == "--quick");
    // Few enough for the processor's cache, and many rounds: who else runs on the machine
    // disturbs all subjects alike.
    let rounds = if is_quick { 21 } else { 401 };

    let mut subjects = subjects();

    // For a profiler: one of them, and nothing else.
    let mut args = std::env::args().skip_while(|arg| arg != "--only");
    if let Some(only) = args.nth(1) {
        let subject = subjects.iter_mut().find(|subject| subject.name == only);
        let subject = subject.expect("one of the names in the table");
        for _ in 0..rounds {
            println!(
                "{:.0} ns",
                (subject.run)((0..REQUESTS).map(request).collect())
            );
        }
        return;
    }

    let mut samples = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            let asked = (0..REQUESTS).map(request).collect();
            samples.push((subject.run)(asked));
        }
    }
    let text = told(&subjects, &samples);
    println!("{text}");
    if !is_quick {
        report::write("layer", "cargo bench -p balde-bench --bench layer", &text);
    }
}

fn told(subjects: &[Subject], samples: &[Vec<f64>]) -> String {
    let index_of = |name: &str| {
        let found = subjects.iter().position(|subject| subject.name == name);
        found.expect("one of the names in the table")
    };
    // Of what is added within a round, because rounds differ more than subjects.
    let added = |name: &str| -> Vec<f64> {
        let own = samples[index_of(name)].iter().zip(&samples[0]);
        own.map(|(ns, alone)| ns - alone).collect()
    };
    let mut all = report::Table::new(&["service", "ns a request", "added ns"]);
    for (subject, samples) in subjects.iter().zip(samples) {
        all.row(&[
            subject.name.to_owned(),
            format!("{:.0}", median(samples.clone())),
            format!("{:.0}", median(added(subject.name))),
        ]);
        eprintln!("{}", all.last_line());
    }
    let mut pairs = report::Table::new(&["balde", "tower_governor", "of what that adds"]);
    for (ours, theirs) in PAIRS {
        let ratios = added(ours).into_iter().zip(added(theirs));
        let ratio = median(ratios.map(|(ours, theirs)| ours / theirs).collect());
        pairs.row(&[ours.to_owned(), theirs.to_owned(), format!("{ratio:.2}")]);
    }
    let mut more = report::Table::new(&["more than one plain limit", "of what that adds"]);
    for name in MORE {
        let ratios = added(name).into_iter().zip(added("balde"));
        let ratio = median(ratios.map(|(more, plain)| more / plain).collect());
        more.row(&[name.to_owned(), format!("{ratio:.2}")]);
    }
    format!(
        "One thread, {CALLERS} callers told apart by the address of the peer, who each have a \
         bucket that is neither full nor empty; median of {} rounds of {} requests, the \
         subjects in turn.\n\n{all}\nLike for like, ratios within a round. \
         tower_governor's fields are two, X-RateLimit-Limit and -Remaining; \
         balde's X-RateLimit-* are three, and RateLimit-Policy and RateLimit two \
         more.\n\n{pairs}\n{more}\n{READING}\n",
        samples[0].len(),
        REQUESTS,
    )
}

/// The service alone is the first.
fn subjects() -> Vec<Subject> {
    let limiter = |name: &str| RateLimiter::builder().name(name).limit(LIMIT);
    let build = |name: &str| limiter(name).build().expect("the limit is good");
    let bare = HeaderOptions::default()
        .without_x_fields()
        .without_ietf_fields();
    let vast = RateLimiter::builder()
        .name("vast")
        .limit("1000/s burst 1000000000");
    let vast = vast.build().expect("the limit is good");
    let governor = || {
        let mut config = GovernorConfigBuilder::default();
        config.per_second(1).burst_size(3_900);
        config
    };

    vec![
        subject("the service alone", service_fn(answer)),
        subject(
            "balde",
            RateLimitLayer::new(build("one")).layer(service_fn(answer)),
        ),
        subject(
            "balde, no fields",
            RateLimitLayer::new(build("two"))
                .headers(bare)
                .layer(service_fn(answer)),
        ),
        subject(
            "balde, X-RateLimit-* only",
            RateLimitLayer::new(build("six"))
                .headers(HeaderOptions::default().without_ietf_fields())
                .layer(service_fn(answer)),
        ),
        subject(
            "balde, cached clock",
            RateLimitLayer::new(
                limiter("three")
                    .clock(Clock::cached(Duration::from_millis(1)))
                    .build()
                    .expect("the limit is good"),
            )
            .layer(service_fn(answer)),
        ),
        subject(
            "balde, modest callers",
            RateLimitLayer::new(
                RateLimiter::builder()
                    .limit(REFILLED)
                    .build()
                    .expect("the limit is good"),
            )
            .layer(service_fn(answer)),
        ),
        subject(
            "balde, cost by a function",
            RateLimitLayer::new(LimitRule::per_caller(build("seven")).cost(|_| 1))
                .layer(service_fn(answer)),
        ),
        subject(
            "balde, settled by outcome",
            RateLimitLayer::new(LimitRule::per_caller(build("four")).price(|_, taken| taken))
                .layer(service_fn(answer)),
        ),
        subject(
            "balde, two limits",
            RateLimitLayer::new(build("five"))
                .and(LimitRule::global(vast.clone()))
                .layer(service_fn(answer)),
        ),
        subject(
            "balde, three limits",
            RateLimitLayer::new(build("eight"))
                .and(LimitRule::global(vast.clone()))
                .and(build("nine"))
                .layer(service_fn(answer)),
        ),
        subject(
            "tower_governor, no fields",
            GovernorLayer::new(Arc::new(governor().finish().expect("a good quota")))
                .layer(service_fn(answer)),
        ),
        subject(
            "tower_governor, its fields",
            GovernorLayer::new(Arc::new(
                governor().use_headers().finish().expect("a good quota"),
            ))
            .layer(service_fn(answer)),
        ),
    ]
}

struct Subject {
    name: &'static str,
    run: Box<dyn FnMut(Vec<Request<Body>>) -> f64>,
}

fn subject<S, B>(name: &'static str, mut service: S) -> Subject
where
    S: Service<Request<Body>, Response = Response<B>> + 'static,
    S::Error: std::fmt::Debug,
{
    let run = move |requests: Vec<Request<Body>>| {
        let count = f64::from(u32::try_from(requests.len()).expect("few requests"));
        let mut answers = Vec::with_capacity(requests.len());
        let began = Instant::now();
        for request in requests {
            answers.push(now(service.call(request)).expect("it answers").status());
        }
        let ns = began.elapsed().as_secs_f64() * 1e9 / count;
        assert!(answers.iter().all(|status| *status == 200), "{name}");
        ns
    };
    Subject {
        name,
        run: Box::new(run),
    }
}

/// Everything here is ready when it is first asked.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a service in memory waits for nobody"),
    }
}

fn request(number: u32) -> Request<Body> {
    let [a, b] = u16::try_from(number % CALLERS)
        .expect("few callers")
        .to_be_bytes();
    let peer = SocketAddr::from(([10, 0, a, b], 4711));
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}
