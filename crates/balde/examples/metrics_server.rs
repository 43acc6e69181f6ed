//! A server on axum that limits its callers and lets Prometheus see it:
//! `cargo run -p balde --features logs,prometheus --example metrics_server`, and elsewhere
//!
//! ```sh
//! for i in $(seq 8); do curl -s -H 'X-Api-Key: alice' http://127.0.0.1:7879/; done
//! curl -s http://127.0.0.1:7879/metrics | grep decisions
//! ```
//!
//! Five greetings, then refusals until the next second; and one line of JSON on the standard output
//! for all of the refusals. `--self-test` starts the server, asks it eight times and stops.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use balde::RateLimiter;
use balde::telemetry::{METRICS_CONTENT_TYPE, Metrics, json_logs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::registry().with(json_logs()).init();
    let is_self_test = std::env::args().any(|arg| arg == "--self-test");
    let address = if is_self_test {
        "127.0.0.1:0"
    } else {
        "127.0.0.1:7879"
    };
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, app()?).into_future());
    if is_self_test {
        return ask(address).await;
    }
    println!("listening on {address}");
    Ok(server.await??)
}

pub(crate) fn app() -> Result<Router, balde::BuildError> {
    let metrics = Metrics::new();
    let limiter = RateLimiter::builder()
        .name("per-key")
        .limit("1/s burst 5")
        .metrics(&metrics)
        .build()?;
    let limited = Router::new().route("/", get(greet)).with_state(limiter);
    Ok(limited.route("/metrics", get(expose).with_state(metrics)))
}

async fn greet(State(limiter): State<RateLimiter>, headers: HeaderMap) -> impl IntoResponse {
    let key = headers
        .get("x-api-key")
        .map_or(&b""[..], |key| key.as_bytes());
    let decision = limiter.check(key).await;
    if decision.is_allowed() {
        (
            StatusCode::OK,
            format!("hello, {} left\n", decision.remaining()),
        )
    } else {
        (StatusCode::TOO_MANY_REQUESTS, "too fast\n".to_owned())
    }
}

async fn expose(State(metrics): State<Metrics>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)],
        metrics.encode(),
    )
}

async fn ask(address: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let mut scraped = String::new();
    for path in ["/"; 8].into_iter().chain(["/metrics"]) {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nX-Api-Key: alice\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        scraped.clear();
        stream.read_to_string(&mut scraped).await?;
        println!("{path}: {}", scraped.lines().next().unwrap_or_default());
    }
    let denied = r#"rate_limiter_decisions_total{policy="per-key",decision="deny"} "#;
    let line = scraped.lines().find(|line| line.starts_with(denied));
    println!("{}", line.ok_or("refusals are counted")?);
    Ok(())
}
