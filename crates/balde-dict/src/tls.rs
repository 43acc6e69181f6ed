//! TLS: the cryptography provider, and what is known of a client certificate.

use ::ring::digest;
use rustls::crypto::{CryptoProvider, ring};

use crate::x509;

/// Installs ring as the process's cryptography provider for rustls, unless one is installed already.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _installed_concurrently = ring::default_provider().install_default();
    }
}

/// What is known of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The ISPB in its subject, if there is one.
    pub(crate) ispb: Option<String>,
    /// The SHA-256 of its DER, in lower-case hexadecimal.
    pub(crate) sha256: String,
}

impl ClientCertificate {
    pub(crate) fn of(der: &[u8]) -> Self {
        Self {
            ispb: x509::subject_ispb(der),
            sha256: hex::encode(digest::digest(&digest::SHA256, der)),
        }
    }
}
