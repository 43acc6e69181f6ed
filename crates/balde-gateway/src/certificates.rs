//! When the gateway's own certificates expire: those of listeners, and those that it presents to
//! upstreams.

use std::sync::Arc;

use balde::telemetry::{Metrics, MetricsWriter};
use parking_lot::RwLock;
use x509_parser::pem::Pem;

use crate::config::Config;

/// The expiry of every certificate of the current configuration. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateExpiry(Arc<RwLock<Vec<Expiry>>>);

#[derive(Debug, PartialEq, Eq)]
struct Expiry {
    /// `listener` or `upstream`.
    side: &'static str,
    /// The address of the listener, or the name of the upstream.
    name: String,
    unix_s: u64,
}

impl CertificateExpiry {
    /// Creates an empty list that appears on the page of `metrics`.
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let expiry = Self::default();
        let source = expiry.clone();
        metrics.add_source(move |writer| source.write(writer));
        expiry
    }

    /// Replaces the list by the certificates of a configuration.
    pub(crate) fn set(&self, config: &Config) {
        let listeners = config.listeners.iter().filter_map(|listener| {
            let (chain, _) = listener.identity.as_ref()?;
            Some(("listener", listener.address.to_string(), chain))
        });
        let upstreams = config.upstreams.iter().filter_map(|upstream| {
            let (chain, _) = upstream.identity.as_ref()?;
            Some(("upstream", upstream.name.clone(), chain))
        });
        let expiries = listeners
            .chain(upstreams)
            .filter_map(|(side, name, chain)| {
                let unix_s = first_expiry_s(chain)?;
                Some(Expiry { side, name, unix_s })
            });
        *self.0.write() = expiries.collect();
    }

    fn write(&self, writer: &mut MetricsWriter<'_>) {
        let expiries = self.0.read();
        let lines = expiries.iter().map(|expiry| {
            let labels = [("side", expiry.side), ("name", expiry.name.as_str())];
            (labels, expiry.unix_s)
        });
        writer.gauge(
            "gateway_certificate_expiry_timestamp_seconds",
            "When the first certificate of a chain expires, in Unix time.",
            lines,
        );
    }
}

/// When the first certificate of a PEM chain expires: an intermediate may do so before the leaf.
fn first_expiry_s(chain: &[u8]) -> Option<u64> {
    let expiry_s = |pem: Pem| {
        let certificate = pem.parse_x509().ok()?;
        u64::try_from(certificate.validity().not_after.timestamp()).ok()
    };
    Pem::iter_from_buffer(chain)
        .filter_map(Result::ok)
        .filter(|pem| pem.label == "CERTIFICATE")
        .filter_map(expiry_s)
        .min()
}
