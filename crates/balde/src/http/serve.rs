//! Serving an axum app with the addresses of its callers.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use axum::middleware::AddExtension;
use axum::serve::Serve;
use tokio::net::TcpListener;

/// Serves an axum app and gives each request the address of its peer, by which
/// [`RateLimitLayer`](super::RateLimitLayer) identifies callers.
///
/// This is `axum::serve` with `app.into_make_service_with_connect_info::<SocketAddr>()`. A plain
/// `axum::serve(listener, app)` provides no addresses, and the layer answers every request with 500.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use balde::{RateLimiter, http::RateLimitLayer};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(RateLimiter::new("10/s burst 20")?));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// balde::http::serve(listener, app).await?;
/// # Ok(()) }
/// ```
///
/// The returned value is axum's: `.with_graceful_shutdown(signal)` works as usual.
pub fn serve(
    listener: TcpListener,
    app: Router,
) -> Serve<
    TcpListener,
    IntoMakeServiceWithConnectInfo<Router, SocketAddr>,
    AddExtension<Router, ConnectInfo<SocketAddr>>,
> {
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
}
