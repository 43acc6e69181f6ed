//! TLS of receivers that are not reached by HTTP.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::config_error::SinkError;
use crate::http_client::install_crypto_provider;

/// A certificate chain and its key, as PEM.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) chain_pem: Vec<u8>,
    pub(super) key_pem: Vec<u8>,
}

/// The TLS configuration of a client that trusts only the CA certificates in `ca_pem`, or those of the
/// system.
pub(super) fn client_config(
    ca_pem: Option<&[u8]>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, SinkError> {
    install_crypto_provider();
    let invalid = |reason: String| SinkError::Tls { reason };
    let config = ClientConfig::builder().with_root_certificates(roots(ca_pem)?);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { chain_pem, key_pem }) => {
            let chain = certificates(chain_pem)?;
            let key = PrivateKeyDer::from_pem_slice(key_pem)
                .map_err(|_| invalid("the client's key is not valid PEM".to_owned()))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| invalid(error.to_string()))?
        }
    };
    Ok(Arc::new(config))
}

fn roots(ca_pem: Option<&[u8]>) -> Result<RootCertStore, SinkError> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = ca_pem else {
        let system = rustls_native_certs::load_native_certs();
        let (added, _ignored) = roots.add_parsable_certificates(system.certs);
        if added == 0 {
            let reason = "the system has no CA certificates; install the package ca-certificates, \
                          or name a file with `ca`";
            let reason = reason.to_owned();
            return Err(SinkError::Tls { reason });
        }
        return Ok(roots);
    };
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| SinkError::Tls {
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SinkError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(SinkError::Tls {
            reason: "the certificates are not valid PEM".to_owned(),
        }),
    }
}
