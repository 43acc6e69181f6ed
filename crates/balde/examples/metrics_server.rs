//! A server on axum that limits its callers and lets Prometheus see it:
//! `cargo run -p balde --features logs,prometheus --example metrics_server`, and elsewhere
//!
//! ```sh
//! for i in $(seq 8); do curl -s -H 'X-Api-Key: alice' http://127.0.0.1:7879/; done
//! curl -s http://127.0.0.1:7879/metrics | grep decisions
//! curl -s http://127.0.0.1:7879/metrics | promtool check metrics
//! ```
//!
//! Five greetings, then refusals until the next second, and one line of JSON for all of these.
//! `/metrics` has durations in seconds, as promtool would have it; `/metrics/ms` in milliseconds.
//! `--self-test` starts the server, asks it eight times and stops.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use balde::telemetry::{METRICS_CONTENT_TYPE, Metrics, json_logs};
use balde::{BuildError, RateLimiter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    tracing_subscriber::registry().with(json_logs()).init();
    let is_self_test = std::env::args().any(|arg| arg == "--self-test");
    let port = if is_self_test { 0 } else { 7879 };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, app()?).into_future());
    if is_self_test {
        return ask(&address.to_string()).await;
    }
    Ok(server.await??)
}

pub(crate) fn app() -> Result<Router, BuildError> {
    let metrics = Metrics::new();
    let limiter = RateLimiter::builder().name("per-key").limit("1/s burst 5");
    let limiter = limiter.metrics(&metrics).build()?;
    let limited = Router::new().route("/", get(greet)).with_state(limiter);
    let clone = metrics.clone();
    let in_seconds = get(async move || page(metrics.encode_in_seconds()));
    let in_ms = get(async move || page(clone.encode()));
    Ok(limited
        .route("/metrics", in_seconds)
        .route("/metrics/ms", in_ms))
}

async fn greet(State(limiter): State<RateLimiter>, headers: HeaderMap) -> impl IntoResponse {
    let key = headers.get("x-api-key").map(HeaderValue::as_bytes);
    let decision = limiter.check(key.unwrap_or_default()).await;
    if decision.is_allowed() {
        (StatusCode::OK, "hello\n")
    } else {
        (StatusCode::TOO_MANY_REQUESTS, "too fast\n")
    }
}

fn page(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], text)
}

async fn ask(address: &str) -> Outcome {
    let mut answer = String::new();
    for path in ["/"; 8].into_iter().chain(["/metrics"]) {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nX-Api-Key: alice\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        stream.read_to_string(&mut answer).await?;
        println!("{path}: {}", answer.lines().next().unwrap_or_default());
    }
    let denied = "rate_limiter_decisions_total{decision=\"deny\"";
    let line = answer.lines().find(|line| line.starts_with(denied));
    println!("{}", line.ok_or("refusals are counted")?);
    Ok(())
}
