//! Configurations of TLS on both sides, from PEM. Errors name the key of the configuration file that
//! holds what is wrong.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::crypto::{CryptoProvider, ring as ring_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate chain and its private key, as PEM.
pub type Identity = (Vec<u8>, Vec<u8>);

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

/// Installs ring as the process's cryptography provider for rustls, unless one is installed already.
pub fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _installed_concurrently = ring_provider::default_provider().install_default();
    }
}

/// Which clients need a certificate, and who must have issued it.
#[derive(Clone, Copy, Debug)]
pub struct ClientCertificates<'a> {
    /// The authorities, as PEM.
    pub ca: &'a [u8],
    /// Whether clients without a certificate are refused.
    pub is_required: bool,
}

/// The configuration of a listener. `protocols` are offered in this order; without any, no protocol is
/// negotiated.
pub fn server(
    (chain, key): &Identity,
    clients: Option<ClientCertificates<'_>>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsError> {
    install_crypto_provider();
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let roots = Arc::new(roots(clients.ca, "`client_ca`")?);
            let mut verifier = WebPkiClientVerifier::builder(roots);
            if !clients.is_required {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier
                .build()
                .map_err(|_| error("`client_ca` contains no certificate that can be used"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(chain, "`certificate`")?, private_key(key)?)
        .map_err(|cause| error(format!("`certificate` does not fit `key`: {cause}")))?;
    config.alpn_protocols = names(protocols);
    Ok(Arc::new(config))
}

/// The configuration of a client. `ca` holds the authorities to trust, as PEM; by default those of the
/// system. `protocols` are offered in this order.
pub fn client(
    ca: Option<&[u8]>,
    identity: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    install_crypto_provider();
    let trusted = match ca {
        Some(ca) => roots(ca, "`ca`")?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder().with_root_certificates(trusted);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(certificates(chain, "`certificate`")?, private_key(key)?)
            .map_err(|cause| error(format!("`certificate` does not fit `key`: {cause}")))?,
    };
    config.alpn_protocols = names(protocols);
    Ok(Arc::new(config))
}

fn names(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.to_vec()).collect()
}

/// The first certificate of a chain; `None` if there is none.
pub fn first_certificate(pem: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).next()?.ok()
}

/// SHA-256 of a certificate (DER).
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
    fingerprint
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (added, _ignored) = roots.add_parsable_certificates(system.certs);
    if added == 0 {
        return Err(error(
            "the system has no CA certificates; install the package ca-certificates, or name a file \
             with `ca`",
        ));
    }
    Ok(roots)
}

fn roots(pem: &[u8], what: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, what)? {
        roots
            .add(certificate)
            .map_err(|_| error(format!("{what} contains a certificate that cannot be used")))?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| error(format!("{what} is not in PEM format")))?;
    if all.is_empty() {
        let reason = format!("{what} contains no certificate in PEM format");
        return Err(error(reason));
    }
    Ok(all)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| error("`key` contains no private key in PEM format"))
}
