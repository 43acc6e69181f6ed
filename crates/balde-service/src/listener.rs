//! Accepts connections for a protocol, with TLS where its section has it, and limits their number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balde::http::{ConnectionSlots, SlotStream};
use balde_net::{MaybeTlsStream, Serving, accept, shutdown_begun};
use parking_lot::RwLock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::config::ListenerConfig;
use crate::metrics::ProtocolMetrics;

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

/// The bytes of a client, encrypted or not.
pub(crate) type ClientStream = MaybeTlsStream<SlotStream<TcpStream>>;

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
        let Self {
            socket,
            config,
            tls,
        } = self;
        let stopped = shutdown.clone();
        let prepare = |stream: TcpStream, peer| {
            let (protocol, metrics) = (Arc::clone(&protocol), Arc::clone(&metrics));
            let (tls, shutdown) = (tls.read().clone(), stopped.clone());
            let permit = Arc::clone(&permits).try_acquire_owned().ok();
            let refusal = match permit {
                Some(_) => None,
                None => Arc::clone(&refusing).try_acquire_owned().ok(),
            };
            let slots = slots.clone();
            let serving: Serving = Box::pin(async move {
                let Some(_permit) = permit else {
                    metrics.count_refused_connection();
                    if refusal.is_some() {
                        let words = if tls.is_some() {
                            &[][..]
                        } else {
                            protocol.too_many()
                        };
                        refuse(stream, words).await;
                    }
                    return;
                };
                let _open = metrics.open_connection();
                let stream = slots.open(stream, config.write_timeout);
                match MaybeTlsStream::accept(stream, tls).await {
                    Ok(stream) => {
                        let connection = Connection {
                            stream,
                            peer,
                            shutdown,
                        };
                        protocol.serve(connection).await;
                    }
                    Err(error) => {
                        tracing::debug!(event_type = "handshake_failed", %error, "TLS handshake failed");
                    }
                }
            });
            std::future::ready(serving)
        };
        accept(socket, shutdown_begun(&mut shutdown), || timeout, prepare).await;
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
