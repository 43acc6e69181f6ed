//! Two limits at once, all or nothing: one per tenant, and one for all tenants together.
//!
//! ```sh
//! cargo run -p balde --features axum --example axum_tenants
//! for i in $(seq 5); do curl -i -H 'authorization: Bearer red-token' http://127.0.0.1:3000/; done
//! for i in $(seq 5); do curl -i -H 'authorization: Bearer blue-token' http://127.0.0.1:3000/; done
//! curl -i http://127.0.0.1:3000/
//! ```
//!
//! Each tenant can send three requests; the seventh request within a minute is refused by "overall",
//! as the body of the response says. A request without a valid token gets a 401 and takes no tokens.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Router, routing::get};
use balde::RateLimiter;
use balde::http::{LimitRule, RateLimitLayer};
use tokio::net::TcpListener;

#[derive(Clone)]
struct Tenant(&'static str);

/// The tenant comes from authentication: a client that could choose its tenant freely could get a new
/// bucket at any time.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get(header::AUTHORIZATION);
    let tenant = match token.map(HeaderValue::as_bytes) {
        Some(b"Bearer red-token") => Tenant("red"),
        Some(b"Bearer blue-token") => Tenant("blue"),
        Some(b"Bearer green-token") => Tenant("green"),
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let named = |name, limit| RateLimiter::builder().name(name).limit(limit).build();
    let per_tenant = LimitRule::per_key(named("per-tenant", "3/min")?, |request| {
        let tenant = request.extensions().get::<Tenant>()?;
        Some(tenant.0)
    });
    let overall = LimitRule::global(named("overall", "6/min")?);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::new(per_tenant).and(overall))
        .layer(from_fn(authenticate));

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    balde::http::serve(listener, app).await?;
    Ok(())
}
