//! What the layer adds to a request, beside `tower_governor` in the same run:
//! `cargo bench -p balde --bench layer` (`-- --quick` for a glance,
//! `-- --only NAME` for a profiler).
//!
//! The service answers at once, so what is measured is the layer: who is asking, the decision, the
//! fields of the answer. Requests are made beforehand; each subject gets the same ones in turn.

#[cfg(feature = "axum")]
#[path = "report/mod.rs"]
mod report;

/// Without the feature it starts itself again with it.
#[cfg(not(feature = "axum"))]
fn main() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = std::process::Command::new(cargo)
        .args(["bench", "-p", "balde", "--bench", "layer"])
        .args(["--features", "axum,prometheus", "--"])
        .args(std::env::args().skip(1).filter(|arg| arg != "--bench"))
        .status();
    match status {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => {
            eprintln!("cargo cannot be started again: {error}");
            std::process::exit(1);
        }
    }
}

#[cfg(feature = "axum")]
fn main() {
    with_layer::main();
}

#[cfg(feature = "axum")]
mod with_layer {
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
    use balde::http::{RateLimitLayer, Rule};
    use balde::{Clock, RateLimiter};
    use http::{Request, Response};
    use tower::{Layer, Service, service_fn};
    use tower_governor::GovernorLayer;
    use tower_governor::governor::GovernorConfigBuilder;

    use crate::report::{self, median};

    /// Never reached, so that every request is let in; and no bucket is full again by the next.
    const LIMIT: &str = "100/s burst 3900";

    /// Every bucket is full again by the next request, as those of modest callers are: the store has
    /// mostly forgotten them by then.
    const REFILLED: &str = "1000000/s burst 500";
    const CALLERS: u32 = 1_000;

    pub(crate) fn main() {
        let is_quick = std::env::args().any(|arg| arg == "--quick");
        let (rounds, requests) = if is_quick { (5, 20_000) } else { (21, 100_000) };

        let mut subjects = subjects();

        // For a profiler: one of them, and nothing else.
        let mut args = std::env::args().skip_while(|arg| arg != "--only");
        if let Some(only) = args.nth(1) {
            let subject = subjects.iter_mut().find(|subject| subject.name == only);
            let subject = subject.expect("one of the names in the table");
            for _ in 0..rounds {
                println!(
                    "{:.0} ns",
                    (subject.run)((0..requests).map(request).collect())
                );
            }
            return;
        }

        let mut samples = vec![Vec::new(); subjects.len()];
        for _ in 0..rounds {
            for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
                let asked = (0..requests).map(request).collect();
                samples.push((subject.run)(asked));
            }
        }
        let medians: Vec<f64> = samples.into_iter().map(median).collect();
        let alone = medians[0];
        let governor = medians[subjects.len() - 1] - alone;
        let mut table = report::Table::new(&[
            "service",
            "ns a request",
            "added ns",
            "tower_governor with its fields / this, of what is added",
        ]);
        for (subject, ns) in subjects.iter().zip(&medians) {
            let added = ns - alone;
            let ratio = if added > 0.0 {
                format!("{:.2}", governor / added)
            } else {
                String::new()
            };
            table.row(&[
                subject.name.to_owned(),
                format!("{ns:.0}"),
                format!("{added:.0}"),
                ratio,
            ]);
            eprintln!("{}", table.last_line());
        }
        let text = format!(
            "One thread, {CALLERS} callers told apart by address, median of {rounds} rounds of \
             {requests} requests. balde writes five fields where tower_governor writes two.\n\n\
             {table}"
        );
        println!("{text}");
        if !is_quick {
            report::write("layer", "cargo bench -p balde --bench layer", &text);
        }
    }

    /// The service alone is the first, the peer at its best the last.
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
            config.per_nanosecond(10_000_000).burst_size(3_900);
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
                "balde, settled by outcome",
                RateLimitLayer::new(Rule::per_caller(build("four")).price(|_, taken| taken))
                    .layer(service_fn(answer)),
            ),
            subject(
                "balde, two limits",
                RateLimitLayer::new(build("five"))
                    .and(Rule::shared(vast.clone()))
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
}
