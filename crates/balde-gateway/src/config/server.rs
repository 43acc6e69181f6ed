//! The sections `[[listener]]`, `[server]` and `[state]`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use balde_config::{Diagnostics, Located, Section};

use super::Resolver;
use balde_net::tls::{self, ClientCertificates, TlsError};

const LISTENERS_MAX: usize = 64;

/// The longest body that can be allowed.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 50;

/// An address to listen on.
#[derive(Clone)]
pub struct ListenerConfig {
    /// The address.
    pub address: SocketAddr,
    /// The certificate chain and key for TLS, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The authorities of client certificates, as PEM.
    pub client_ca: Option<Vec<u8>>,
    /// Whether clients must present a certificate.
    pub is_client_required: bool,
}

impl ListenerConfig {
    /// The configuration of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Result<Option<Arc<rustls::ServerConfig>>, TlsError> {
        let clients = self.client_ca.as_deref();
        let clients = clients.map(|ca| ClientCertificates {
            ca,
            is_required: self.is_client_required,
        });
        let identity = self.identity.as_ref();
        identity
            .map(|own| tls::server(own, clients, &[b"h2", b"http/1.1"]))
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

/// Sizes, timeouts and numbers of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The threads that serve requests; `None` for one per processor.
    pub workers: Option<usize>,
    /// The most connections of clients at a time. Further ones wait to be accepted.
    pub connections_max: usize,
    /// The longest head of a request, in bytes.
    pub header_bytes_max: usize,
    /// The most header fields of a request.
    pub headers_max: usize,
    /// The longest body of a request, in bytes.
    pub body_bytes_max: u64,
    /// The longest wait for a request's head, and for the next request of a connection.
    pub header_timeout: Duration,
    /// The longest wait for the next part of a request's body.
    pub body_timeout: Duration,
    /// The longest time in which a client accepts no byte of a response.
    pub write_timeout: Duration,
    /// How long a response may take to begin after the client has closed its half of the connection.
    pub half_close_timeout: Duration,
    /// How long requests in flight may take after shutdown has begun.
    pub shutdown_timeout: Duration,
    /// How long a connection that has switched protocols may be idle.
    pub tunnel_idle_timeout: Duration,
    /// How long the gateway goes on serving after SIGTERM, while `/readyz` says that it is not ready.
    pub drain_delay: Duration,
    /// Whether a line is logged for every request.
    pub is_access_logged: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: None,
            connections_max: 20_000,
            header_bytes_max: 32 * 1_024,
            headers_max: 100,
            body_bytes_max: 10 * 1_024 * 1_024,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            half_close_timeout: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(30),
            tunnel_idle_timeout: Duration::from_secs(300),
            drain_delay: Duration::from_secs(5),
            is_access_logged: false,
        }
    }
}

/// The endpoint that reports the state of buckets.
#[derive(Clone)]
pub struct StateConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The bearer token that requests need.
    pub token: String,
}

impl fmt::Debug for StateConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateConfig")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

pub(super) fn read(section: Option<Section<'_>>, diagnostics: &mut Diagnostics) -> ServerConfig {
    let mut config = ServerConfig::default();
    let Some(mut section) = section else {
        return config;
    };
    let server = &mut section;
    if let Some(workers) = server.integer("workers", 1..=1_024, diagnostics) {
        config.workers = usize::try_from(workers.value).ok();
    }
    let connections = &mut config.connections_max;
    server.set_count("connections_max", 1..=1_000_000, connections, diagnostics);
    // hyper needs at least 8 KiB to read a head.
    if let Some(size) = server.size("header_size_max", 8_192..=1_048_576, diagnostics) {
        config.header_bytes_max = usize::try_from(size.value).unwrap_or(usize::MAX);
    }
    server.set_count(
        "headers_max",
        1..=1_000,
        &mut config.headers_max,
        diagnostics,
    );
    if let Some(size) = server.size("body_size_max", 0..=BODY_BYTES_MAX, diagnostics) {
        config.body_bytes_max = size.value;
    }
    let (none, short, second) = (
        Duration::ZERO,
        Duration::from_millis(1),
        Duration::from_secs(1),
    );
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    for (key, range, target) in [
        ("header_timeout", short..=hour, &mut config.header_timeout),
        ("body_timeout", short..=hour, &mut config.body_timeout),
        ("write_timeout", short..=hour, &mut config.write_timeout),
        (
            "half_close_timeout",
            none..=hour,
            &mut config.half_close_timeout,
        ),
        (
            "shutdown_timeout",
            short..=hour,
            &mut config.shutdown_timeout,
        ),
        (
            "tunnel_idle_timeout",
            second..=day,
            &mut config.tunnel_idle_timeout,
        ),
        ("drain_delay", none..=hour, &mut config.drain_delay),
    ] {
        server.set_duration(key, range, target, diagnostics);
    }
    if let Some(access_log) = server.boolean("access_log", diagnostics) {
        config.is_access_logged = access_log.value;
    }
    section.finish(diagnostics);
    config
}

pub(super) fn listeners(
    root: &mut Section<'_>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<ListenerConfig> {
    let mut listeners: Vec<ListenerConfig> = Vec::new();
    let sections = root.tables("listener", diagnostics);
    if sections.is_empty() {
        let message = "there is no listener; write [[listener]] with `address`";
        diagnostics.at(None, message);
    }
    for mut section in sections {
        let span = section.span();
        let text = section.require("address", diagnostics);
        let text = text.and_then(|text| text.string(diagnostics));
        let address = text.and_then(|text| address(text, "127.0.0.1:8080", diagnostics));
        let identity = resolver.identity(&mut section, diagnostics);
        let client_ca = resolver.bytes(&mut section, "client_ca", diagnostics);
        let words = [("required", true), ("optional", false)];
        section.renamed(&[("client_certificate", "client_auth")]);
        let required = section.choice("client_auth", &words, diagnostics);
        let has_identity = section.contains("certificate") || section.contains("key");
        section.finish(diagnostics);
        if client_ca.is_some() && !has_identity {
            let message = "`client_ca` needs TLS: write `certificate` and `key`, too";
            diagnostics.at(span, message);
        }
        let Some(address) = address else { continue };
        let is_known = |known: &ListenerConfig| known.address == address && address.port() != 0;
        if listeners.iter().any(is_known) {
            diagnostics.at(text.map(|text| text.span), "this address is listed twice");
        }
        if listeners.len() == LISTENERS_MAX {
            let message = format!("there are more than {LISTENERS_MAX} listeners");
            diagnostics.at(span, message);
            break;
        }
        let listener = ListenerConfig {
            address,
            identity,
            client_ca,
            is_client_required: required.is_none_or(|required| required.value),
        };
        if let Err(error) = listener.tls() {
            diagnostics.at(span, error.to_string());
        }
        listeners.push(listener);
    }
    listeners
}

pub(super) fn state(
    section: Option<Section<'_>>,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<StateConfig> {
    let mut section = section?;
    section.renamed(&[("listen", "address")]);
    let text = section.require("address", diagnostics);
    let text = text.and_then(|text| text.string(diagnostics));
    let token = resolver.secret(&mut section, "token_env", diagnostics);
    if !section.contains("token_env") {
        let message = "missing key `token_env` in [state]: the variable that holds the token";
        diagnostics.at(section.span(), message);
    }
    section.finish(diagnostics);
    Some(StateConfig {
        address: address(text?, "127.0.0.1:8090", diagnostics)?,
        token: token?,
    })
}

fn address(
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
