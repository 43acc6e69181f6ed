//! What is known of a client's certificate.

use balde_dict::certificate_ispb;
use balde_net::tls::fingerprint;

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
            ispb: certificate_ispb(der),
            sha256: hex::encode(fingerprint(der)),
        }
    }
}
