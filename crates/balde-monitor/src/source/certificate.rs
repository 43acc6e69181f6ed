//! When a client's certificate expires.

use x509_parser::pem::Pem;

/// Returns when the first certificate of a PEM chain expires; `None` if none can be read.
pub fn certificate_expiry_us(chain: &[u8]) -> Option<u64> {
    let expiry_us = |pem: Pem| {
        let certificate = pem.parse_x509().ok()?;
        let expiry_s = certificate.validity().not_after.timestamp();
        u64::try_from(expiry_s).ok()?.checked_mul(1_000_000)
    };
    Pem::iter_from_buffer(chain)
        .filter_map(Result::ok)
        .filter(|pem| pem.label == "CERTIFICATE")
        .filter_map(expiry_us)
        .min()
}
