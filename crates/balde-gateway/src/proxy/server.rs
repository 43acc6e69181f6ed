//! Accepts connections, with TLS where the listener has it, and serves their requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use balde::http::{BusyConnection, ConnectionSlots};
use balde::telemetry::LogThrottle;
use balde_dict::certificate_ispb;
use balde_net::{HandshakeError, MaybeTlsStream, Serving, accept, shutdown_begun, tls};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::unconstrained;

use super::answering::Answering;
use super::client_stream::ClientStream;
use super::framing::RawFraming;
use super::handle::Connection;
use super::request::serve_request;
use super::routing::Routing;
use super::target::KnownHost;
use crate::config::ServerConfig;
use crate::cut_tasks;
use crate::cut_tasks::StreamExecutor;
use crate::limits::{Caller, ClientCertificate};
use crate::metrics::GatewayMetrics;
use crate::state::Readiness;
use crate::upstream::ClientId;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;

/// The most header fields that hyper accepts by default.
const HEADERS_MAX_OF_HYPER: usize = 100;

/// While all connections are in use, idle ones are looked for this often.
const EVICT_INTERVAL: Duration = Duration::from_millis(20);

/// What all connections share. What a reload can change is behind locks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) routing: RwLock<Arc<Routing>>,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) clock: balde::Clock,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) slots: ConnectionSlots,
    pub(crate) handshake_failures: LogThrottle,
    pub(crate) readiness: Arc<Readiness>,
    /// The connections so far.
    pub(crate) connections: AtomicU64,
}

impl Shared {
    pub(crate) fn routing(&self) -> Arc<Routing> {
        Arc::clone(&self.routing.read())
    }
}

/// A listener with its certificate, which a reload can change.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Arc<RwLock<Option<Arc<rustls::ServerConfig>>>>,
}

/// A connection of a client, which counts until nothing uses it: neither its requests nor the tunnel
/// that it has become.
pub(crate) struct OpenConnection {
    _permit: OwnedSemaphorePermit,
    metrics: GatewayMetrics,
}

impl OpenConnection {
    fn new(permit: OwnedSemaphorePermit, metrics: &GatewayMetrics) -> Arc<Self> {
        metrics.connection_opened();
        Arc::new(Self {
            _permit: permit,
            metrics: metrics.clone(),
        })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.connection_closed();
    }
}

/// Serves a listener until `shutdown` is true. Requests in flight are then answered, within the
/// server's timeout.
#[expect(
    clippy::async_yields_async,
    reason = "the connection is served in a task of its own"
)]
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: Listener,
    mut shutdown: watch::Receiver<bool>,
) {
    let Listener { socket, tls } = listener;
    let stopped = shutdown.clone();
    let grace = || shared.routing().server.shutdown_timeout;
    let prepare = |stream, peer| {
        let (shared, tls) = (Arc::clone(&shared), tls.read().clone());
        let shutdown = stopped.clone();
        async move {
            let open = OpenConnection::new(permit(&shared).await, &shared.metrics);
            let serving: Serving = Box::pin(async move {
                serve_stream(&shared, open, stream, peer, tls, shutdown).await;
            });
            serving
        }
    };
    accept(socket, shutdown_begun(&mut shutdown), grace, prepare).await;
}

/// A permit for a connection that was accepted. If there is none, the connection that has been idle for
/// the longest time is closed for it.
async fn permit(shared: &Shared) -> OwnedSemaphorePermit {
    loop {
        let permit = Arc::clone(&shared.permits).acquire_owned();
        if shared.permits.available_permits() == 0 {
            shared.slots.evict_idle();
        }
        if let Ok(Ok(permit)) = tokio::time::timeout(EVICT_INTERVAL, permit).await {
            return permit;
        }
    }
}

async fn serve_stream(
    shared: &Arc<Shared>,
    open: Arc<OpenConnection>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    shutdown: watch::Receiver<bool>,
) {
    let write_timeout = shared.routing().server.write_timeout;
    let stream = shared.slots.open(stream, write_timeout);
    let busy = stream.busy();
    match MaybeTlsStream::accept(stream, tls).await {
        Ok(stream) => {
            let certificate = stream.client_certificate().map(|certificate| {
                let fingerprint = tls::fingerprint(certificate);
                ClientCertificate {
                    name: hex::encode(fingerprint),
                    fingerprint,
                    ispb: certificate_ispb(certificate),
                }
            });
            let caller = Caller::new(peer, stream.is_tls(), certificate);
            serve_http(shared, open, stream, busy, caller, shutdown).await;
        }
        Err(error) => handshake_failed(shared, &error),
    }
}

fn handshake_failed(shared: &Shared, error: &HandshakeError) {
    if let Some(suppressed) = shared.handshake_failures.allow(shared.clock.now_us()) {
        tracing::info!(
            event_type = "handshake_failed",
            suppressed,
            "TLS handshake failed: {error}"
        );
    }
}

async fn serve_http(
    shared: &Arc<Shared>,
    open: Arc<OpenConnection>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    busy: BusyConnection,
    caller: Caller,
    mut shutdown: watch::Receiver<bool>,
) {
    let config = shared.routing().server.clone();
    let framing = RawFraming::new(config.header_bytes_max);
    let stream = ClientStream::new(stream, &config, framing.clone());
    let connection = Arc::new(Connection {
        open,
        known_host: KnownHost::new(caller.is_tls),
        caller,
        framing: framing.clone(),
        metrics: shared.metrics.clone(),
        clock: shared.clock.clone(),
        shutdown: shutdown.clone(),
        readiness: Arc::clone(&shared.readiness),
        busy,
        id: ClientId(shared.connections.fetch_add(1, Ordering::Relaxed) + 1),
    });
    let service = service_fn(|request: Request<Incoming>| {
        let (routing, connection) = (shared.routing(), Arc::clone(&connection));
        // Not within the future: hyper may read the end of the connection before it polls the future.
        let version = request.version();
        let ambiguity = match version {
            Version::HTTP_09 | Version::HTTP_10 | Version::HTTP_11 => framing.ambiguity(&request),
            _ => None,
        };
        async move {
            let served = serve_request(routing, Arc::clone(&connection), request, ambiguity);
            let response = Answering::response(served.await, version, &connection.framing);
            Ok::<_, Infallible>(response)
        }
    });
    let builder = http_builder(&config);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let mut begun = std::pin::pin!(unconstrained(shutdown_begun(&mut shutdown)));
    let (mut is_registered, mut is_ending) = (false, false);
    let served = poll_fn(|cx| {
        // The waker of this task stays the same, so it is registered once: by the first poll, which has
        // no budget that could keep it from that. Then it suffices to look whether anything has changed.
        let is_unchanged = is_registered && matches!(connection.shutdown.has_changed(), Ok(false));
        if !is_unchanged && !is_ending {
            is_registered = true;
            is_ending = begun.as_mut().poll(cx).is_ready();
            if is_ending {
                serving.as_mut().graceful_shutdown();
            }
        }
        if cut_tasks::is_marked() {
            return Poll::Ready(Ok(()));
        }
        serving.as_mut().poll(cx)
    });
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

fn http_builder(config: &ServerConfig) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_buf_size(config.header_bytes_max)
        .half_close(false);
    // hyper allocates and fills a table for every request if it is told a number, even its own.
    if config.headers_max != HEADERS_MAX_OF_HYPER {
        builder.http1().max_headers(config.headers_max);
    }
    let bytes = u32::try_from(config.header_bytes_max).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(config.header_timeout)
        .keep_alive_timeout(config.header_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(config.header_bytes_max)
        .max_header_list_size(bytes)
        .adaptive_window(true);
    builder
}
