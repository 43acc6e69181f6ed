//! The ISPB in a certificate.

use crate::x509;

/// Returns the ISPB in the subject of a certificate (DER), if there is one. The TLS handshake has to
/// check whether the certificate is trusted.
pub fn certificate_ispb(certificate: &[u8]) -> Option<String> {
    x509::subject_ispb(certificate)
}
