//! The sections `[[upstream]]`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use balde_config::{Diagnostics, Section};
use http::Uri;
use http::uri::{Authority, Scheme};

use super::Resolver;
use balde_net::tls::{self, TlsError};

const UPSTREAMS_MAX: usize = 256;

/// A server that requests are forwarded to.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// The name that routes refer to.
    pub name: String,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// The certificate authorities to trust, as PEM; by default those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate chain and key for mutual TLS, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The most connections.
    pub connections_max: usize,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// The longest wait for a connection, TLS handshake included.
    pub connect_timeout: Duration,
    /// The longest wait for a response's head.
    pub response_timeout: Duration,
    /// The longest wait for the next part of a response's body.
    pub body_timeout: Duration,
    /// The value of `Host`.
    pub host: HostHeader,
    /// Which requests are sent once more on a new connection, if a connection that was used before is
    /// closed before there is a response.
    pub retry: Retry,
    /// Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded` are added.
    pub is_forwarded_added: bool,
}

/// The version of HTTP that an upstream is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Negotiated under TLS; HTTP/1.1 without.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, also without TLS.
    Http2,
}

/// Which requests are sent once more, if their connection was used before and is closed before any
/// byte of a response was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Those that were not written, and those whose method is idempotent (GET, HEAD, PUT, DELETE,
    /// OPTIONS). The upstream may process one of the latter twice.
    Idempotent,
    /// Only those of which no byte was written.
    Unsent,
}

/// The value of `Host` in requests to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// What the client sent.
    Client,
    /// The upstream's own host.
    Upstream,
}

impl UpstreamConfig {
    /// The upstream's base URI.
    pub fn uri(&self) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        Uri::from_parts(parts).expect("scheme, authority and path make a URI")
    }
}

impl UpstreamConfig {
    /// The configuration of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Result<Option<Arc<rustls::ClientConfig>>, TlsError> {
        if self.scheme != Scheme::HTTPS {
            return Ok(None);
        }
        let protocols: &[&[u8]] = match self.protocol {
            Protocol::Auto => &[b"h2", b"http/1.1"],
            Protocol::Http1 => &[b"http/1.1"],
            Protocol::Http2 => &[b"h2"],
        };
        tls::client(self.ca.as_deref(), self.identity.as_ref(), protocols).map(Some)
    }
}

impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not be logged.
        f.debug_struct("UpstreamConfig")
            .field("name", &self.name)
            .field("scheme", &self.scheme)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

pub(super) fn read(
    root: &mut Section<'_>,
    is_dict: bool,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<UpstreamConfig> {
    let mut upstreams: Vec<UpstreamConfig> = Vec::new();
    let sections = root.tables("upstream", diagnostics);
    if sections.is_empty() {
        let message = "there is no upstream; write [[upstream]] with `name` and `url`";
        diagnostics.at(None, message);
    }
    for mut section in sections {
        let span = section.span();
        let name = section.get("name").and_then(|name| name.as_str());
        let Some(upstream) = read_one(section, is_dict, resolver, diagnostics) else {
            diagnostics.failed("upstream", name);
            continue;
        };
        if upstreams.iter().any(|known| known.name == upstream.name) {
            let message = format!("there is an upstream `{}` already", upstream.name);
            diagnostics.at(span, message);
            continue;
        }
        if upstreams.len() == UPSTREAMS_MAX {
            let message = format!("there are more than {UPSTREAMS_MAX} upstreams");
            diagnostics.at(span, message);
            break;
        }
        if let Err(error) = upstream.tls() {
            diagnostics.at(span, error.to_string());
        }
        upstreams.push(upstream);
    }
    upstreams
}

fn read_one(
    mut section: Section<'_>,
    is_dict: bool,
    resolver: &Resolver<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<UpstreamConfig> {
    let span = section.span();
    let name = section.require("name", diagnostics);
    let name = name.and_then(|name| name.string(diagnostics));
    let url = section.require("url", diagnostics);
    let url = url.and_then(|url| url.string(diagnostics));
    let words = [
        ("auto", Protocol::Auto),
        ("http1", Protocol::Http1),
        ("http2", Protocol::Http2),
    ];
    let protocol = section.choice("protocol", &words, diagnostics);
    let ca = resolver.bytes(&mut section, "ca", diagnostics);
    let identity = resolver.identity(&mut section, diagnostics);
    let mut connections_max = 1_024;
    section.set_count(
        "connections_max",
        1..=65_536,
        &mut connections_max,
        diagnostics,
    );
    let mut timeout = |key, seconds| {
        let mut timeout = Duration::from_secs(seconds);
        let range = Duration::from_millis(1)..=Duration::from_secs(3_600);
        section.set_duration(key, range, &mut timeout, diagnostics);
        timeout
    };
    let idle_timeout = timeout("idle_timeout", 60);
    let connect_timeout = timeout("connect_timeout", 3);
    let response_timeout = timeout("response_timeout", 30);
    let body_timeout = timeout("body_timeout", 30);
    let words = [
        ("client", HostHeader::Client),
        ("upstream", HostHeader::Upstream),
    ];
    let host = section.choice("host", &words, diagnostics);
    section.renamed(&[("forwarded", "add_forwarded")]);
    let forwarded = section.boolean("add_forwarded", diagnostics);
    let words = [("idempotent", Retry::Idempotent), ("unsent", Retry::Unsent)];
    let retry = section.choice("retry", &words, diagnostics);
    section.finish(diagnostics);

    let (name, url) = (name?, url?);
    let parsed = url.value.parse::<Uri>().ok();
    let parts = parsed.map(Uri::into_parts).and_then(|parts| {
        let is_bare = parts.path_and_query.is_none_or(|path| path == "/");
        let scheme = parts
            .scheme
            .filter(|scheme| is_bare && (*scheme == Scheme::HTTP || *scheme == Scheme::HTTPS));
        scheme.zip(parts.authority)
    });
    let Some((scheme, authority)) = parts else {
        let message = "`url` must be http:// or https:// with host and port and without a path, \
                       such as http://127.0.0.1:9000";
        diagnostics.at(url.span, message);
        return None;
    };
    if authority.as_str().contains('@') {
        diagnostics.at(url.span, "a URL with a user name cannot be used");
    }
    if scheme == Scheme::HTTP && (ca.is_some() || identity.is_some()) {
        let message = "`ca`, `certificate` and `key` need https:// in `url`";
        diagnostics.at(span, message);
    }
    let (host_by_default, retry_by_default) = if is_dict {
        (HostHeader::Upstream, Retry::Unsent)
    } else {
        (HostHeader::Client, Retry::Idempotent)
    };
    if let Some(retry) = &retry
        && is_dict
        && retry.value == Retry::Idempotent
    {
        let message = "a gateway with [dict] must not send a request twice, because DICT may count \
                       both; write \"unsent\" or leave `retry` out";
        diagnostics.at(retry.span, message);
    }
    Some(UpstreamConfig {
        name: name.value.to_owned(),
        scheme,
        authority,
        protocol: protocol.map_or(Protocol::Auto, |protocol| protocol.value),
        ca,
        identity,
        connections_max,
        idle_timeout,
        connect_timeout,
        response_timeout,
        body_timeout,
        host: host.map_or(host_by_default, |host| host.value),
        retry: retry.map_or(retry_by_default, |retry| retry.value),
        is_forwarded_added: forwarded.map_or(!is_dict, |forwarded| forwarded.value),
    })
}
