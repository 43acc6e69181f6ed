//! axum with buckets in Redis, shared by several processes. While Redis is unavailable, each process
//! enforces a share of the limit on its own.
//!
//! ```sh
//! redis-server --port 6379 &
//! REDIS_ADDR=127.0.0.1:6379 cargo run -p balde --features axum,redis --example axum_redis
//! for i in $(seq 25); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! redis-cli -p 6379 shutdown nosave
//! for i in $(seq 25); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! ```
//!
//! At first twenty requests pass. Without Redis ten pass, because the process then enforces half of
//! the limit. Start a second process on another port (`-- 127.0.0.1:3001`), and both take from one
//! bucket.

use axum::{Router, routing::get};
use balde::http::RateLimitLayer;
use balde::{OnFailure, RateLimiter, RedisStore, Share};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = std::env::var("REDIS_ADDR").unwrap_or_else(|_| "127.0.0.1:6379".to_owned());
    let store = RedisStore::builder().address(redis).build()?;
    let local = OnFailure::Local {
        share: Share::percent(50),
    };
    let limiter = RateLimiter::builder()
        .name("per-address")
        .limit("10/min burst 20")
        .redis(&store, local)
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
