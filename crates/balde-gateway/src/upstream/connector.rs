//! Opens connections to an upstream: within a timeout, with TLS if it needs it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::health::Health;
use crate::config::{Protocol, UpstreamConfig};
use balde_net::tls::TlsError;

/// Why no connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The upstream is known to be down.
    #[error("the upstream is down")]
    Down,
    /// All connections are in use.
    #[error("all connections to the upstream are in use")]
    TooMany,
    /// The connection or the TLS handshake took too long.
    #[error("the upstream did not accept the connection in time")]
    Timeout,
    /// The name of the upstream has no address.
    #[error("the name of the upstream cannot be resolved (DNS)")]
    Unresolved,
    /// The connection failed.
    #[error("the upstream cannot be reached: {0}")]
    Failed(io::ErrorKind),
    /// The TLS handshake failed.
    #[error("the TLS handshake with the upstream failed: {0}")]
    Tls(&'static str),
    /// The connection was closed, or the request was given up, before anything was written.
    #[error("the connection to the upstream was closed before the request was sent")]
    Closed,
}

/// Opens connections to one upstream.
pub(crate) struct Connector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    health: Arc<Health>,
    protocol: Protocol,
}

impl Connector {
    pub(crate) fn new(config: &UpstreamConfig, health: &Arc<Health>) -> Result<Self, TlsError> {
        let host = config.authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let tls = config.tls()?;
        let by_default = if tls.is_some() { 443 } else { 80 };
        let tls = tls.map(|tls| {
            let name = ServerName::try_from(host.to_owned());
            // A name that is no host name cannot be connected to either.
            let name = name.unwrap_or_else(|_| ServerName::try_from("invalid").expect("a name"));
            (TlsConnector::from(tls), name)
        });
        Ok(Self {
            host: host.to_owned(),
            port: config.authority.port_u16().unwrap_or(by_default),
            tls,
            health: Arc::clone(health),
            protocol: config.protocol,
        })
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<UpstreamStream, ConnectError> {
        let Ok(opened) = timeout_at(deadline, self.open()).await else {
            self.health.failed();
            return Err(ConnectError::Timeout);
        };
        let stream = opened.inspect_err(|error| {
            if !is_local(error) {
                self.health.failed();
            }
        });
        let stream = stream.map_err(OpenError::into_connect_error)?;
        self.health.connected();
        let is_http2 = match &stream {
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            Stream::Plain(_) => self.protocol == Protocol::Http2,
        };
        Ok(UpstreamStream { stream, is_http2 })
    }

    /// Resolves the name, connects and does the TLS handshake, each by itself, so that the error says
    /// which of them failed.
    async fn open(&self) -> Result<Stream, OpenError> {
        let addresses = lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<_> = addresses.map_err(OpenError::Resolve)?.collect();
        let stream = TcpStream::connect(addresses.as_slice()).await;
        let stream = stream.map_err(OpenError::Connect)?;
        let _only_slower_without = stream.set_nodelay(true);
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await;
                Ok(Stream::Tls(Box::new(stream.map_err(OpenError::Tls)?)))
            }
        }
    }
}

/// The step that failed.
enum OpenError {
    Resolve(io::Error),
    Connect(io::Error),
    Tls(io::Error),
}

impl OpenError {
    fn into_connect_error(self) -> ConnectError {
        match self {
            Self::Resolve(_) => ConnectError::Unresolved,
            Self::Connect(error) => ConnectError::Failed(error.kind()),
            Self::Tls(error) => ConnectError::Tls(tls_cause(&error)),
        }
    }
}

/// Why a TLS handshake failed, in words that say what to change.
fn tls_cause(error: &io::Error) -> &'static str {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            CertificateError::UnknownIssuer => {
                "its certificate is not signed by an authority in `ca`, or of the system"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name than the host in `url`"
            }
            _ => "its certificate is not valid",
        },
        Some(rustls::Error::AlertReceived(_)) => {
            "it refused the handshake; it may require `certificate` and `key`"
        }
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS",
        _ => "the connection broke",
    }
}

/// Whether this process or machine lacked something, which says nothing about the upstream: file
/// descriptors (EMFILE, ENFILE), or ports to connect from.
fn is_local(error: &OpenError) -> bool {
    let (OpenError::Resolve(error) | OpenError::Connect(error) | OpenError::Tls(error)) = error;
    error.kind() == io::ErrorKind::AddrNotAvailable || matches!(error.raw_os_error(), Some(23 | 24))
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection to an upstream.
pub(crate) struct UpstreamStream {
    stream: Stream,
    is_http2: bool,
}

impl UpstreamStream {
    /// Whether HTTP/2 was agreed on.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
