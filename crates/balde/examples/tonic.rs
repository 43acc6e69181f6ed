//! A rate-limited gRPC server: each address can make two calls at once, then one per second. Refused
//! calls get `RESOURCE_EXHAUSTED`.
//!
//! ```sh
//! cargo run -p balde --features tower --example tonic
//! for i in $(seq 3); do
//!   printf '\0\0\0\0\0' | curl -s -i --http2-prior-knowledge --data-binary @- -H 'te: trailers' \
//!     -H 'content-type: application/grpc' http://127.0.0.1:3000/grpc.health.v1.Health/Check
//! done
//! ```
//!
//! The third response has `grpc-status: 8` and `retry-after: 1`.

use balde::RateLimiter;
use balde::http::RateLimitLayer;
use balde::http::identity::Identity;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::builder()
        .name("per-address")
        .limit("1/s burst 2")
        .build()?;
    // tonic puts the peer's address into this extension.
    let identity = Identity::default().peer_from(|extensions| {
        let info = extensions.get::<TcpConnectInfo>()?;
        info.remote_addr().map(|address| address.ip())
    });
    let layer = RateLimitLayer::new(limiter).identity(identity);

    // Any service works; this one comes with tonic.
    let (_reporter, health) = tonic_health::server::health_reporter();

    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000").parse()?;
    let incoming = TcpIncoming::bind(address)?;
    println!("listening on http://{}", incoming.local_addr()?);
    Server::builder()
        .layer(layer)
        .add_service(health)
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
