//! Cost by size, settled by outcome: a token for each KiB sent, all given back when nothing was
//! stored, and twenty more for asking after something that is not there.
//!
//! ```sh
//! cargo run -p balde --features axum --example axum_cost
//! head -c 30000 /dev/zero | curl -i --data-binary @- http://127.0.0.1:3000/
//! head -c 90000 /dev/zero | curl -i --data-binary @- http://127.0.0.1:3000/
//! curl -i http://127.0.0.1:3000/nothing
//! ```
//!
//! The first leaves 70 of 100 tokens, the second is refused until there are enough, and the 404
//! leaves 50 and a few.

use std::net::SocketAddr;

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
            // Whoever does not say how much is coming pays for much.
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
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
