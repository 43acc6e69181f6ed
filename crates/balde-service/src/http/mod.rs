//! JSON over HTTP. `openapi.json` describes it, and is served at `/openapi.json`.
//!
//! | File | Holds |
//! |--|--|
//! | `routes.rs` | which request runs which command |
//! | `bodies.rs` | the bodies of requests |
//! | `reply.rs` | the bodies of answers, and problem documents |

mod bodies;
mod reply;
mod routes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;

use crate::access::Access;
use crate::config::HttpConfig;
use crate::decisions::Decisions;
use crate::listener::{Connection, Protocol};
use crate::metrics::ProtocolMetrics;
use crate::shutdown;

/// The `OpenAPI` document of this interface, as JSON.
pub const OPENAPI: &str = include_str!("openapi.json");

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct HttpServer {
    decisions: Decisions,
    access: Arc<RwLock<Access>>,
    metrics: Arc<ProtocolMetrics>,
    body_bytes_max: usize,
    idle_timeout: Duration,
}

impl HttpServer {
    pub(crate) fn new(
        config: &HttpConfig,
        decisions: Decisions,
        access: Arc<RwLock<Access>>,
        metrics: Arc<ProtocolMetrics>,
    ) -> Self {
        Self {
            decisions,
            access,
            metrics,
            body_bytes_max: config.body_bytes_max,
            idle_timeout: config.listener.idle_timeout,
        }
    }
}

impl Protocol for HttpServer {
    async fn serve(self: Arc<Self>, connection: Connection) {
        let Connection {
            stream,
            mut shutdown,
            ..
        } = connection;
        let service = service_fn(|request: Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let builder = http_builder(self.idle_timeout);
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            served = serving.as_mut() => served,
            () = shutdown::begun(&mut shutdown) => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }

    fn too_many(&self) -> &'static [u8] {
        TOO_MANY
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }
}

/// What a connection gets that is one too many.
pub(crate) const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";

/// A server of both versions of HTTP, whose connections may be idle for so long.
pub(crate) fn http_builder(idle_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
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
