//! TLS: the cryptography provider, and the ISPB in a certificate.

use rustls::crypto::{CryptoProvider, ring};

use crate::x509;

/// Installs ring as the process's cryptography provider for rustls, unless one is installed already.
pub fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _installed_concurrently = ring::default_provider().install_default();
    }
}

/// Returns the ISPB in the subject of a certificate (DER), if there is one. The TLS handshake has to
/// check whether the certificate is trusted.
pub fn certificate_ispb(certificate: &[u8]) -> Option<String> {
    x509::subject_ispb(certificate)
}
