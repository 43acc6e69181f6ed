//! HTTP connections, for the protocols that are built on HTTP.

use std::error::Error;
use std::time::Duration;

use balde_net::shutdown_begun;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::watch;

use crate::listener::ClientStream;

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;

/// What a connection of HTTP/1.1 gets that is one too many.
pub(crate) const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";

/// Serves the requests of a connection, which may be idle for so long. After shutdown has begun,
/// requests under way are answered.
pub(crate) async fn serve<S, B>(
    stream: ClientStream,
    service: S,
    idle_timeout: Duration,
    mut shutdown: watch::Receiver<bool>,
) where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let builder = builder(idle_timeout);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = shutdown_begun(&mut shutdown) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

fn builder(idle_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        // A client that is gone takes its request with it.
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(idle_timeout)
        .keep_alive_timeout(idle_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}
