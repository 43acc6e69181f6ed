//! What every client of the monitor has in common, whomever it calls.

use std::error::Error;

use rustls::crypto::{CryptoProvider, ring};

/// rustls asks the process for its cryptography. Whoever has chosen already, has chosen.
pub(crate) fn choose_ring() {
    if CryptoProvider::get_default().is_none() {
        let _chosen_meanwhile = ring::default_provider().install_default();
    }
}

/// The innermost cause of an error: it says most, and has no address in it.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
