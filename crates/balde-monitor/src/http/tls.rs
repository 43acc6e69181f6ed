//! TLS of the pages, by option.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::http_client::install_crypto_provider;

/// The TLS configuration of a server with this certificate chain and key, as PEM.
pub(crate) fn server_config(chain: &[u8], key: &[u8]) -> io::Result<Arc<ServerConfig>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    install_crypto_provider();
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| invalid(format!("`certificate` is no PEM: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| invalid(format!("`key` is no PEM: {error}")))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| invalid(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
