//! Shared by all HTTP clients of the monitor: the TLS provider and error causes.

use std::error::Error;

use rustls::crypto::{CryptoProvider, ring};

/// Installs ring as the process-wide crypto provider of rustls, unless one is installed already.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _lost_race = ring::default_provider().install_default();
    }
}

/// Returns the root cause of an error: the most specific message, and one without the URL, which may
/// hold a secret.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
