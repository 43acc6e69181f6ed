//! Cost by body size, settled by outcome: a request takes one token per KiB. The tokens are refunded
//! if nothing was stored, and a 404 costs twenty.
//!
//! ```sh
//! cargo run -p balde --features axum --example axum_cost
//! head -c 30000 /dev/zero | curl -i --data-binary @- http://127.0.0.1:3000/
//! head -c 90000 /dev/zero | curl -i --data-binary @- http://127.0.0.1:3000/
//! curl -i http://127.0.0.1:3000/nothing
//! ```
//!
//! The first request leaves 70 of 100 tokens, the second is refused until there are enough, and the
//! 404 leaves a little over 50.

use axum::body::Bytes;
use axum::{Router, http::StatusCode, routing::post};
use balde::RateLimiter;
use balde::http::{LimitRule, Outcome, RateLimitLayer};
use tokio::net::TcpListener;

const KIB: u64 = 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .name("upload")
        .limit("10/s burst 100 debt 1000")
        .build()?;
    let rule = LimitRule::per_caller(limiter)
        .cost(|request| match request.body_bytes() {
            Some(bytes) => bytes.div_ceil(KIB).max(1),
            // A body of unknown size costs the maximum.
            None => 100,
        })
        .price(|outcome, taken| match outcome {
            Outcome::Answered { status, .. } if *status == StatusCode::NOT_FOUND => 20,
            Outcome::Answered { status, .. } if status.is_success() => taken,
            _ => 0,
        });
    let app = Router::new()
        .route("/", post(|_: Bytes| async { StatusCode::CREATED }))
        .layer(RateLimitLayer::new(rule));

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    balde::http::serve(listener, app).await?;
    Ok(())
}
