//! What the sections of all protocols share: the address, TLS, and the limits on connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balde_config::{Diagnostics, Located, Resolver, Section};
use balde_net::tls::{self, ClientCertificates, TlsError};

use super::count;

/// An address to listen on.
#[derive(Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The address and port to bind; port 0 is a free one.
    pub address: SocketAddr,
    /// The certificate chain and key for TLS, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The authorities of client certificates, as PEM.
    pub client_ca: Option<Vec<u8>>,
    /// Whether clients must present a certificate.
    pub is_client_required: bool,
    /// The most connections at a time. Further ones are answered with the protocol's error.
    pub connections_max: usize,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// The longest time in which a client accepts no byte of an answer.
    pub write_timeout: Duration,
}

impl ListenerConfig {
    /// Takes the keys of a listener from the section of a protocol, whose other keys remain.
    pub(super) fn read(
        section: &mut Section<'_>,
        example: &str,
        resolver: &Resolver<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let span = section.span();
        let text = section.require("address", diagnostics);
        let text = text.and_then(|text| text.string(diagnostics));
        let address = text.and_then(|text| address(text, example, diagnostics));
        let identity = resolver.identity(section, diagnostics);
        let client_ca = resolver.bytes(section, "client_ca", diagnostics);
        let words = [("required", true), ("optional", false)];
        section.renamed(&[("client_certificate", "client_auth")]);
        let required = section.choice("client_auth", &words, diagnostics);
        if section.contains("client_ca") && !section.contains("certificate") {
            let message = "`client_ca` needs TLS: write `certificate` and `key`, too";
            diagnostics.at(span, message);
        }
        let connections_max = count(
            section,
            "connections_max",
            1..=1_000_000,
            10_000,
            diagnostics,
        );
        let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
        let idle = section.duration("idle_timeout", range.clone(), diagnostics);
        let write = section.duration("write_timeout", range, diagnostics);
        let listener = Self {
            address: address?,
            identity,
            client_ca,
            is_client_required: required.is_none_or(|required| required.value),
            connections_max,
            idle_timeout: idle.map_or(Duration::from_secs(300), |idle| idle.value),
            write_timeout: write.map_or(Duration::from_secs(10), |write| write.value),
        };
        if let Err(error) = listener.tls(&[]) {
            diagnostics.at(span, error.to_string());
        }
        Some(listener)
    }

    /// The configuration of TLS; `None` without TLS.
    pub(crate) fn tls(
        &self,
        protocols: &[&[u8]],
    ) -> Result<Option<Arc<rustls::ServerConfig>>, TlsError> {
        let clients = self.client_ca.as_deref().map(|ca| ClientCertificates {
            ca,
            is_required: self.is_client_required,
        });
        let identity = self.identity.as_ref();
        identity
            .map(|own| tls::server(own, clients, protocols))
            .transpose()
    }
}

impl fmt::Debug for ListenerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not be logged.
        f.debug_struct("ListenerConfig")
            .field("address", &self.address)
            .field("is_tls", &self.identity.is_some())
            .field("is_mutual", &self.client_ca.is_some())
            .finish_non_exhaustive()
    }
}

pub(super) fn address(
    text: Located<&str>,
    example: &str,
    diagnostics: &mut Diagnostics,
) -> Option<SocketAddr> {
    let address = text.value.parse().ok();
    if address.is_none() {
        let message = format!("this must be an address and a port, such as {example}");
        diagnostics.at(text.span, message);
    }
    address
}
