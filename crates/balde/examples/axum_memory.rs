//! axum with buckets in memory: each address can send five requests at once, then one per second.
//!
//! ```sh
//! cargo run -p balde --features axum --example axum_memory
//! for i in $(seq 7); do curl -i http://127.0.0.1:3000/; done
//! ```
//!
//! The first five responses are 200 with `x-ratelimit-remaining` counting down to 0, the others are
//! 429 with `retry-after: 1`.

use axum::{Router, routing::get};
use balde::RateLimiter;
use balde::http::RateLimitLayer;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .name("per-address")
        .limit("1/s burst 5")
        .build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(limiter));

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    balde::http::serve(listener, app).await?;
    Ok(())
}
