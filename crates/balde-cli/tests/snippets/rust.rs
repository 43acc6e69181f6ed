//! Rust in the pages. Whole programs are compiled elsewhere: by doc tests, and by a test of the READMEs
//! in a package of their own. Here are the others, each in a function with what it needs around it; the
//! pages have the same lines.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use balde::RateLimiter;
use balde::http::{LimitRule, RateLimitLayer};
use balde::telemetry::METRICS_CONTENT_TYPE;
use tokio::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::blocks::{Block, repository};

type Failure = Box<dyn std::error::Error>;

/// Pages whose programs crates/balde/tests/examples/readmes.rs compiles and runs.
pub(crate) const README_PROGRAMS: [&str; 3] =
    ["README.md", "README.pt-BR.md", "crates/balde/README.md"];

/// Pages that a crate's doc tests include.
const DOC_TESTS: [(&str, &str); 5] = [
    ("crates/balde/README.md", "crates/balde/src/lib.rs"),
    ("docs/keys.md", "crates/balde/src/lib.rs"),
    (
        "crates/balde-policy/README.md",
        "crates/balde-policy/src/lib.rs",
    ),
    ("docs/throttle.md", "crates/balde-throttle/src/lib.rs"),
    (
        "crates/balde-throttle/README.md",
        "crates/balde-throttle/src/lib.rs",
    ),
];

pub(crate) fn is_compiled(block: &Block) -> bool {
    let is_included = DOC_TESTS.iter().any(|(page, file)| {
        let source = std::fs::read_to_string(repository().join(file)).unwrap();
        let (_, name) = page.rsplit_once('/').unwrap();
        *page == block.page && source.contains(&format!("/{name}\")]"))
    });
    is_included || README_PROGRAMS.contains(&block.page.as_str()) || is_here(&block.code)
}

fn is_here(code: &str) -> bool {
    fn lines(text: &str) -> String {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
    lines(include_str!("rust.rs")).contains(&lines(code))
}

#[test]
fn the_arithmetic_alone() {
    core().unwrap();
}

/// crates/balde-core/README.md
#[rustfmt::skip]
fn core() -> Result<(), balde_core::ParseLimitError> {
use balde_core::{Command, Limit};

fn main() -> Result<(), balde_core::ParseLimitError> {
    let limit: Limit = "10/s burst 100".parse()?;
    let now_us = 0;

    // A bucket that was never used is full, and has no state.
    let first = limit.apply(None, Command::Take { n: 100 }, now_us);
    assert!(first.is_allowed());

    let second = limit.apply(first.state(), Command::Take { n: 1 }, now_us);
    assert!(!second.is_allowed());
    assert_eq!(second.retry_after_us(), Some(100_000));
    Ok(())
}
    main()
}

/// docs/http.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
async fn http(per_address: RateLimiter, per_site: RateLimiter, listener: TcpListener, app: Router) -> Result<(), Failure> {
    let layer = RateLimitLayer::new(per_address)                    // "10/s burst 20" for each /64
        .and(LimitRule::per_ipv6_network(per_site, 48));            // "100/s burst 200" for each /48
    balde::http::serve(listener, app).await?; // instead of axum::serve(listener, app)
    Ok(())
}

/// docs/options.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
fn options() -> Result<(), Failure> {
    let limiters = balde::Options::read("limits.toml")?.build()?;
    let per_user = limiters.get("per-user").expect("it is in the file");
    Ok(())
}

/// docs/options.md
#[rustfmt::skip]
#[expect(dead_code, reason = "compiled, not run")]
fn options_with_telemetry() -> Result<Router, Failure> {
    let options = balde::Options::read("limits.toml")?;
    let _telemetry = options.init_telemetry()?;
    let limiters = options.build()?;
    let metrics = limiters.metrics().expect("they are on").clone();
    let page = get(move || async move { ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics.encode()) });
    Ok(Router::new().route("/metrics", page))
}

/// docs/options.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
fn throttlers() -> Result<(), Failure> {
    let (options, throttlers) = balde_throttle::ThrottlerOptions::read("limits.toml")?;
    let limiters = options.build()?;
    let throttlers = throttlers.build(&limiters)?;
    let import = throttlers.get("import").expect("it is in the file");
    Ok(())
}

/// docs/telemetry.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
fn metrics() -> Result<(), Failure> {
    let metrics = balde::telemetry::Metrics::new();
    let limiter = RateLimiter::builder().name("per-user").limit("10/s").metrics(&metrics).build()?;
    // GET /metrics: metrics.encode() or metrics.encode_in_seconds(), as METRICS_CONTENT_TYPE
    Ok(())
}

/// docs/telemetry.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
fn logs() {
    let (layer, guard) = balde::telemetry::Logs::new().layer();
    tracing_subscriber::registry().with(layer).init();
}

/// docs/telemetry.md
#[rustfmt::skip]
#[expect(dead_code, unused_variables, reason = "compiled, not run")]
fn spans() -> Result<(), Failure> {
    let (layer, guard) = balde::telemetry::Otlp::grpc("http://127.0.0.1:4317").sample_one_in(100).layer()?;
    let (lines, logs) = balde::telemetry::Logs::new().layer();
    tracing_subscriber::registry().with(layer).with(lines).init();
    Ok(())
}
