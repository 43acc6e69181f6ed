//! Accepts connections for a protocol, with TLS where its section has it, and limits their number.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use balde::http::{ConnectionSlots, SlotStream};
use balde::telemetry::LogThrottle;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::ListenerConfig;
use crate::metrics::ProtocolMetrics;
use crate::shutdown;

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long a connection that is one too many gets to read its error.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// The most connections that are being refused at a time; further ones are closed without a word.
const REFUSING_MAX: usize = 64;

/// What a protocol does with connections.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Serves a connection until it ends or shutdown begins.
    fn serve(self: Arc<Self>, connection: Connection) -> impl Future<Output = ()> + Send + 'static;

    /// What a connection gets that is one too many, before it is closed.
    fn too_many(&self) -> &'static [u8];

    /// The names of the protocol for the negotiation of TLS.
    fn alpn(&self) -> &'static [&'static [u8]];
}

/// A connection of a client.
pub(crate) struct Connection {
    pub(crate) stream: ClientStream,
    pub(crate) peer: SocketAddr,
    pub(crate) shutdown: watch::Receiver<bool>,
}

/// An address that a protocol listens on.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    config: ListenerConfig,
    tls: SharedTls,
}

/// The certificates of a listener, which a reload can change.
pub(crate) type SharedTls = Arc<RwLock<Option<Arc<rustls::ServerConfig>>>>;

impl Listener {
    pub(crate) async fn bind(config: &ListenerConfig, tls: SharedTls) -> io::Result<Self> {
        let address = config.address;
        let socket = balde::http::listen(address).await.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
        })?;
        Ok(Self {
            socket,
            config: config.clone(),
            tls,
        })
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Serves connections until `shutdown` is true; those that are open may then take `timeout`.
    pub(crate) async fn serve<P: Protocol>(
        self,
        protocol: Arc<P>,
        metrics: Arc<ProtocolMetrics>,
        mut shutdown: watch::Receiver<bool>,
        timeout: Duration,
    ) {
        let slots = ConnectionSlots::new(self.config.connections_max);
        let permits = Arc::new(Semaphore::new(self.config.connections_max));
        let refusing = Arc::new(Semaphore::new(REFUSING_MAX));
        let failures = LogThrottle::new();
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = shutdown::begun(&mut shutdown) => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                // Out of file descriptors, or the client is gone already: the listener still works.
                Err(error) => {
                    metrics.accept_failed(&failures, &error);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                metrics.count_refused_connection();
                let is_tls = self.tls.read().is_some();
                if let Ok(permit) = Arc::clone(&refusing).try_acquire_owned() {
                    let words = if is_tls { &[][..] } else { protocol.too_many() };
                    connections.spawn(async move {
                        refuse(stream, words).await;
                        drop(permit);
                    });
                }
                continue;
            };
            let _only_slower_without = stream.set_nodelay(true);
            let stream = slots.open(stream, self.config.write_timeout);
            let (protocol, metrics) = (Arc::clone(&protocol), Arc::clone(&metrics));
            let (tls, shutdown) = (self.tls.read().clone(), shutdown.clone());
            connections.spawn(async move {
                let _open = metrics.open_connection();
                if let Some(stream) = ClientStream::new(stream, tls).await {
                    let connection = Connection {
                        stream,
                        peer,
                        shutdown,
                    };
                    protocol.serve(connection).await;
                }
                drop(permit);
            });
        }
        drop(self);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, all).await.is_err() {
            tracing::warn!("closed connections whose requests did not end in time");
            connections.shutdown().await;
        }
    }
}

/// Tells a client why its connection is closed.
async fn refuse(mut stream: TcpStream, words: &[u8]) {
    let written = async {
        stream.write_all(words).await?;
        stream.shutdown().await
    };
    let _client_may_be_gone = tokio::time::timeout(REFUSAL_MAX, written).await;
}

/// The bytes of a client, encrypted or not.
pub(crate) enum ClientStream {
    Plain(SlotStream<TcpStream>),
    Tls(Box<TlsStream<SlotStream<TcpStream>>>),
}

impl ClientStream {
    /// Shakes hands, where there is TLS. `None` if that fails.
    async fn new(
        stream: SlotStream<TcpStream>,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Option<Self> {
        let Some(config) = tls else {
            return Some(Self::Plain(stream));
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
            Ok(Ok(stream)) => Some(Self::Tls(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::debug!(event_type = "handshake_failed", %error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
