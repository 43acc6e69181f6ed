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
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, unconstrained};
use tokio_rustls::TlsAcceptor;

use super::answering::Answering;
use super::client_stream::ClientStream;
use super::framing::RawFraming;
use super::handle::Connection;
use super::request::serve_request;
use super::routing::Routing;
use super::target::KnownHost;
use crate::config::ServerConfig;
use crate::cut_tasks::StreamExecutor;
use crate::limits::{Caller, ClientCertificate};
use crate::metrics::GatewayMetrics;
use crate::state::Readiness;
use crate::upstream::ClientId;
use crate::{cut_tasks, shutdown, tls};

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;

/// The most header fields that hyper accepts by default.
const HEADERS_MAX_OF_HYPER: usize = 100;

/// While all connections are in use, idle ones are looked for this often.
const EVICT_INTERVAL: Duration = Duration::from_millis(20);

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// What all connections share. What a reload can change is behind locks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) routing: RwLock<Arc<Routing>>,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) clock: balde::Clock,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) slots: ConnectionSlots,
    pub(crate) accept_failures: LogThrottle,
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
    _permit: Option<OwnedSemaphorePermit>,
    metrics: GatewayMetrics,
}

impl OpenConnection {
    fn new(permit: Option<OwnedSemaphorePermit>, metrics: &GatewayMetrics) -> Arc<Self> {
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
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: Listener,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let accepted = listener.socket.accept().await;
            let permit = match &accepted {
                Ok(_) => Some(permit(&shared).await),
                Err(_) => None,
            };
            (permit, accepted)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = shutdown::begun(&mut shutdown) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let shared = Arc::clone(&shared);
                let tls = listener.tls.read().clone();
                let shutdown = shutdown.clone();
                let open = OpenConnection::new(permit, &shared.metrics);
                connections.spawn(async move {
                    serve_stream(&shared, open, stream, peer, tls, shutdown).await;
                });
            }
            // Out of file descriptors, or the client is gone already: the listener still works.
            Err(error) => {
                if let Some(suppressed) = shared.accept_failures.allow(shared.clock.now_us()) {
                    tracing::warn!(
                        event_type = "accept_failed", suppressed, %error,
                        "a connection could not be accepted"
                    );
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    drop(listener);
    let timeout = shared.routing().server.shutdown_timeout;
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(timeout, all).await.is_err() {
        tracing::warn!("closed connections whose requests did not end in time");
        connections.shutdown().await;
    }
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
    let _only_slower_without = stream.set_nodelay(true);
    let write_timeout = shared.routing().server.write_timeout;
    let stream = shared.slots.open(stream, write_timeout);
    let busy = stream.busy();
    let Some(config) = tls else {
        let caller = Caller::new(peer, false, None);
        return serve_http(shared, open, stream, busy, caller, shutdown).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
        Ok(Ok(stream)) => {
            let chain = stream.get_ref().1.peer_certificates();
            let certificate = chain.and_then(|chain| chain.first()).map(|own| {
                let fingerprint = tls::fingerprint(own);
                ClientCertificate {
                    name: hex::encode(fingerprint),
                    fingerprint,
                    ispb: certificate_ispb(own),
                }
            });
            let caller = Caller::new(peer, true, certificate);
            serve_http(shared, open, stream, busy, caller, shutdown).await;
        }
        Ok(Err(error)) => handshake_failed(shared, &error),
        Err(_) => handshake_failed(shared, &"it took too long"),
    }
}

fn handshake_failed(shared: &Shared, error: &dyn std::fmt::Display) {
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
    let mut begun = std::pin::pin!(unconstrained(shutdown::begun(&mut shutdown)));
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
