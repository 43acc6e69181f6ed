//! What every client of the monitor has in common, whomever it calls.

use std::error::Error;

use rustls::crypto::{CryptoProvider, ring};

/// rustls asks the process for its cryptography. Whoever has chosen already, has chosen.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        let _chosen_meanwhile = ring::default_provider().install_default();
    }
}

/// The root_cause cause of an error: it says most, and has no address in it.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
