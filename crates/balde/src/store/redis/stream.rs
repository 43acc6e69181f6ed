//! The byte stream to one server: TCP, TLS or a Unix socket.

use std::io;
use std::sync::Arc;

use redis::{ConnectionAddr, TlsCertificates};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A stream of any kind. Boxed: one call of a virtual function for each read of many replies.
pub(super) type ByteStream = Box<dyn Stream>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a stream could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("the name of the server cannot be resolved (DNS): {0}")]
    Resolve(#[source] io::Error),
    #[error("the connection is refused: nothing listens there, or a firewall rejects it")]
    Refused,
    #[error("{0}")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
}

impl OpenError {
    fn of_connect(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Connect(error),
        }
    }

    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Refused => false,
            Self::Resolve(error) | Self::Connect(error) | Self::Tls(error) => {
                error.kind() == io::ErrorKind::TimedOut
            }
        }
    }
}

/// Opens a stream to `address`.
pub(super) async fn open(
    address: &ConnectionAddr,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<ByteStream, OpenError> {
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    match address {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(open_tcp(host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let tls = tls.ok_or_else(|| OpenError::Tls(unsupported()))?;
            let name = ServerName::try_from(host.as_str());
            let name = name.map_err(|error| OpenError::Tls(io::Error::other(error)))?;
            let tcp = open_tcp(host, *port).await?;
            let connector = TlsConnector::from(Arc::clone(tls));
            let connected = connector.connect(name.to_owned(), tcp).await;
            Ok(Box::new(connected.map_err(OpenError::Tls)?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let connected = tokio::net::UnixStream::connect(path).await;
            Ok(Box::new(connected.map_err(OpenError::of_connect)?))
        }
        _ => Err(OpenError::Connect(unsupported())),
    }
}

/// Resolves the name and connects to the first of its addresses that accepts: two steps, so that the
/// error says which one failed.
async fn open_tcp(host: &str, port: u16) -> Result<TcpStream, OpenError> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<_> = addresses.map_err(OpenError::Resolve)?.collect();
    let stream = TcpStream::connect(addresses.as_slice()).await;
    let stream = stream.map_err(OpenError::of_connect)?;
    // With Nagle's algorithm a call would wait for the acknowledgement of the one before it.
    stream.set_nodelay(true).map_err(OpenError::Connect)?;
    Ok(stream)
}

/// The settings of TLS: the authorities to trust (by default those of the system), and who we are.
/// Errors name the problem and do not quote the input.
pub(super) fn tls_config(certificates: Option<&TlsCertificates>) -> Result<ClientConfig, String> {
    let root = certificates.and_then(|certificates| certificates.root_cert.as_deref());
    let builder = ClientConfig::builder().with_root_certificates(roots(root)?);
    let Some(identity) = certificates.and_then(|certificates| certificates.client_tls.as_ref())
    else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(&identity.client_cert)
        .collect::<Result<Vec<_>, pem::Error>>()
        .map_err(|_| "the client certificate cannot be read as PEM")?;
    let key = PrivateKeyDer::from_pem_slice(&identity.client_key)
        .map_err(|_| "the client's private key cannot be read as PEM")?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("the client certificate and its key cannot be used: {error}"))
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| "a CA certificate cannot be read as PEM")?;
            let added = roots.add(certificate);
            added.map_err(|error| format!("a CA certificate cannot be used: {error}"))?;
        }
    } else {
        // Certificates that rustls does not accept are common in the stores of systems.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err("there is no CA certificate to trust".to_owned());
    }
    Ok(roots)
}
