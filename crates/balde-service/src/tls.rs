//! TLS of listeners.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring as ring_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Why certificates or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS cannot be set up: {reason}")]
pub struct TlsError {
    reason: String,
}

fn error(reason: impl Into<String>) -> TlsError {
    TlsError {
        reason: reason.into(),
    }
}

/// Which clients need a certificate, and who must have issued it.
pub(crate) struct ClientCertificates<'a> {
    pub(crate) ca: &'a [u8],
    pub(crate) is_required: bool,
}

/// The configuration of a listener that offers these protocols, in this order. Without protocols
/// none is negotiated.
pub(crate) fn server(
    (chain, key): &(Vec<u8>, Vec<u8>),
    clients: Option<&ClientCertificates<'_>>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    if CryptoProvider::get_default().is_none() {
        let _installed_concurrently = ring_provider::default_provider().install_default();
    }
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut verifier = WebPkiClientVerifier::builder(Arc::new(roots(clients.ca)?));
            if !clients.is_required {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier
                .build()
                .map_err(|_| error("`client_ca` contains no certificate that can be used"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| error("`key` contains no private key in PEM format"))?;
    let mut config = builder
        .with_single_cert(certificates(chain, "`certificate`")?, key)
        .map_err(|cause| error(format!("`certificate` does not fit `key`: {cause}")))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "`client_ca`")? {
        roots
            .add(certificate)
            .map_err(|_| error("`client_ca` contains a certificate that cannot be used"))?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| error(format!("{what} is not in PEM format")))?;
    if all.is_empty() {
        return Err(error(format!(
            "{what} contains no certificate in PEM format"
        )));
    }
    Ok(all)
}
