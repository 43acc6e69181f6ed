//! The sections `[[route]]` and `[[class]]`.

use std::net::IpAddr;
use std::time::Duration;

use balde_config::{Diagnostics, Located, Section};
use balde_policy::{PathRules, Permission};
use http::{HeaderName, Method};
use ipnet::IpNet;

use super::server::BODY_BYTES_MAX;
use super::upstreams::UpstreamConfig;
use crate::host;

/// The class of the gateway's own requests to DICT, for which a share of some buckets is reserved.
pub(crate) const RECONCILIATION_CLASS: &str = "balde.reconciliation";

const ROUTES_MAX: usize = 1_024;
const CLASSES_MAX: usize = 32;

/// Which requests go to which upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The name in metrics and logs.
    pub name: String,
    /// The host that requests must name; any if `None`. Lower case, without a port.
    pub host: Option<String>,
    /// The prefix of the path, which ends at a slash or at the end of the path.
    pub path: String,
    /// The methods; all if empty.
    pub methods: Vec<Method>,
    /// The index of the upstream.
    pub upstream: usize,
    /// Whether policies apply to its requests.
    pub is_limited: bool,
    /// How long requests wait for tokens, if they do not ask for another time.
    pub wait: Duration,
    /// The longest wait that requests may ask for.
    pub wait_max: Duration,
    /// The index of the class that all callers of this route belong to.
    pub class: Option<usize>,
    /// The longest body of a request, in bytes, if it differs from the server's.
    pub body_bytes_max: Option<u64>,
    /// The header whose value is the `EndToEndId` of a payment order that was sent.
    pub order_header: Option<HeaderName>,
    /// The protocols that a connection may switch to.
    pub upgrade: Vec<String>,
}

/// A group of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerClass {
    /// The name that routes and reserves refer to.
    pub name: String,
    /// SHA-256 of the certificates of its callers.
    pub certificates: Vec<[u8; 32]>,
    /// A header and its value, with the networks from which it counts.
    pub header: Option<(HeaderName, String)>,
    /// The networks from which the header counts.
    pub networks: Vec<IpNet>,
}

/// The SHA-256 of a certificate, with or without colons.
pub(super) fn fingerprint(text: Located<&str>, diagnostics: &mut Diagnostics) -> Option<[u8; 32]> {
    let digits = text.value.replace(':', "");
    let mut digest = [0; 32];
    if hex::decode_to_slice(&digits, &mut digest).is_err() {
        let message = "this must be the SHA-256 of a certificate: 64 hexadecimal digits";
        diagnostics.at(text.span, message);
        return None;
    }
    Some(digest)
}

pub(super) fn classes(root: &mut Section<'_>, diagnostics: &mut Diagnostics) -> Vec<CallerClass> {
    let mut classes: Vec<CallerClass> = Vec::new();
    for mut section in root.tables("class", diagnostics) {
        let span = section.span();
        let name = section.require("name", diagnostics);
        let name = name.and_then(|name| name.string(diagnostics));
        let mut certificates = Vec::new();
        for text in section.strings("certificates", diagnostics) {
            certificates.extend(fingerprint(text, diagnostics));
        }
        let header = section.string("header", diagnostics);
        let value = section.string("value", diagnostics);
        let mut networks = Vec::new();
        for text in section.strings("networks", diagnostics) {
            let address = text.value.parse::<IpAddr>().map(IpNet::from);
            match address.or_else(|_| text.value.parse::<IpNet>()) {
                Ok(network) => networks.push(network),
                Err(_) => diagnostics.at(
                    text.span,
                    "this must be an address or a network, such as 10.1.2.3 or 10.0.0.0/8",
                ),
            }
        }
        section.finish(diagnostics);
        let header = match (header, value) {
            (Some(header), Some(value)) => {
                let name = HeaderName::from_bytes(header.value.as_bytes());
                if name.is_err() {
                    diagnostics.at(header.span, "`header` must be the name of a header");
                }
                if networks.is_empty() {
                    let message = "`header` needs `networks`: the networks whose callers may set \
                                   it. Any caller could choose its class otherwise";
                    diagnostics.at(header.span, message);
                }
                name.ok().map(|name| (name, value.value.to_owned()))
            }
            (None, None) => None,
            (header, value) => {
                let span = header.or(value).map(|text| text.span);
                diagnostics.at(span, "`header` and `value` are used together");
                None
            }
        };
        let Some(name) = name else {
            diagnostics.failed("class", None);
            continue;
        };
        if name.value == RECONCILIATION_CLASS {
            let message = format!("the class `{RECONCILIATION_CLASS}` is the gateway's own");
            diagnostics.at(name.span, message);
        }
        if classes.iter().any(|known| known.name == name.value) {
            let message = format!("there is a class `{}` already", name.value.escape_debug());
            diagnostics.at(name.span, message);
            continue;
        }
        if classes.len() == CLASSES_MAX {
            diagnostics.at(span, format!("there are more than {CLASSES_MAX} classes"));
            break;
        }
        classes.push(CallerClass {
            name: name.value.to_owned(),
            certificates,
            header,
            networks,
        });
    }
    classes
}

pub(super) fn read(
    root: &mut Section<'_>,
    upstreams: &[UpstreamConfig],
    classes: &[CallerClass],
    is_dict: bool,
    diagnostics: &mut Diagnostics,
) -> Vec<RouteConfig> {
    let mut routes: Vec<RouteConfig> = Vec::new();
    let sections = root.tables("route", diagnostics);
    if sections.is_empty() {
        let message = "there is no route; write [[route]] with `path` and `upstream`";
        diagnostics.at(None, message);
    }
    for section in sections {
        let span = section.span();
        let Some(route) = read_one(section, upstreams, classes, is_dict, diagnostics) else {
            continue;
        };
        let is_same = |known: &RouteConfig| {
            known.host == route.host && known.path == route.path && known.methods == route.methods
        };
        if routes.iter().any(is_same) {
            diagnostics.at(span, "an earlier route has the same host, path and methods");
        }
        if routes.iter().any(|known| known.name == route.name) {
            let message = format!(
                "there is a route `{}` already; give this one a `name`",
                route.name.escape_debug()
            );
            diagnostics.at(span, message);
        }
        if routes.len() == ROUTES_MAX {
            diagnostics.at(span, format!("there are more than {ROUTES_MAX} routes"));
            break;
        }
        routes.push(route);
    }
    routes
}

fn read_one(
    mut section: Section<'_>,
    upstreams: &[UpstreamConfig],
    classes: &[CallerClass],
    is_dict: bool,
    diagnostics: &mut Diagnostics,
) -> Option<RouteConfig> {
    let name = section.string("name", diagnostics);
    let host = section.string("host", diagnostics);
    let path = section.require("path", diagnostics);
    let path = path.and_then(|path| path.string(diagnostics));
    let mut methods = Vec::new();
    for text in section.strings("methods", diagnostics) {
        match Method::from_bytes(text.value.as_bytes()) {
            Ok(method) if matches!(method.as_str(), "ANY" | "ALL") => diagnostics.at(
                text.span,
                "this is no method of HTTP, and the route would match nothing: leave `methods` out to \
                 match all of them",
            ),
            Ok(method) => methods.push(method),
            Err(_) => diagnostics.at(text.span, "this is not a method of HTTP"),
        }
    }
    let upstream = section.require("upstream", diagnostics);
    let upstream = upstream.and_then(|upstream| upstream.string(diagnostics));
    section.renamed(&[("limits", "policies")]);
    let limits = section.boolean("policies", diagnostics);
    let range = || Duration::ZERO..=Duration::from_secs(3_600);
    let wait = section.duration("wait", range(), diagnostics);
    let wait_max = section.duration("wait_max", range(), diagnostics);
    let class = section.string("class", diagnostics);
    let body_bytes_max = section.size("body_size_max", 0..=BODY_BYTES_MAX, diagnostics);
    let order_header = section.string("order_header", diagnostics);
    let upgrade = upgrade(&mut section, is_dict, diagnostics);
    section.finish(diagnostics);

    let known = |name: &str| upstreams.iter().position(|known| known.name == name);
    let upstream = upstream.and_then(|upstream| {
        let found = known(upstream.value);
        if found.is_none() {
            let name = upstream.value.escape_debug();
            let message = format!("there is no upstream `{name}`");
            diagnostics.unknown("upstream", upstream.value, upstream.span, message);
        }
        found
    });
    let class = class.and_then(|class| {
        let found = classes.iter().position(|known| known.name == class.value);
        if found.is_none() {
            let name = class.value.escape_debug();
            let message = format!("there is no class `{name}`; write [[class]] with this `name`");
            diagnostics.unknown("class", class.value, class.span, message);
        }
        found
    });
    let order_header = order_header.and_then(|header| {
        let name = HeaderName::from_bytes(header.value.as_bytes());
        if name.is_err() {
            diagnostics.at(header.span, "`order_header` must be the name of a header");
        }
        name.ok()
    });
    let host = host.and_then(|host| {
        let canonical = host::canonical(host.value, 80);
        let canonical = canonical.filter(|canonical| host::name_of(canonical) == canonical);
        if canonical.is_none() {
            diagnostics.at(host.span, "`host` must be a host without a port");
        }
        canonical.map(std::borrow::Cow::into_owned)
    });
    let path = path?;
    if !path.value.starts_with('/') || path.value.contains(['?', '#', ' ']) {
        let message = "`path` must begin with `/` and have no query";
        diagnostics.at(path.span, message);
    }
    if path.value.contains('*') {
        let message = "`path` is a prefix without wildcards, and `*` would match nothing: write the \
                       path without it, and the route matches everything below the path";
        diagnostics.at(path.span, message);
    }
    let prefix = normal_prefix(path, diagnostics);
    let wait = wait.map_or(Duration::ZERO, |wait| wait.value);
    Some(RouteConfig {
        name: name.map_or_else(|| path.value.to_owned(), |name| name.value.to_owned()),
        host,
        path: prefix,
        methods,
        upstream: upstream?,
        is_limited: limits.is_none_or(|limits| limits.value),
        wait,
        wait_max: wait_max.map_or(wait, |most| most.value.max(wait)),
        class,
        body_bytes_max: body_bytes_max.map(|bytes| bytes.value),
        order_header,
        upgrade,
    })
}

/// The prefix in the form in which paths are compared.
fn normal_prefix(path: Located<&str>, diagnostics: &mut Diagnostics) -> String {
    let rules = PathRules::default().escaped_slashes(Permission::Keep);
    match rules.normalized(path.value) {
        Ok(normal) => normal.into_owned(),
        Err(error) => {
            let message = format!("no request can have this `path`: {error}");
            diagnostics.at(path.span, message);
            path.value.to_owned()
        }
    }
}

/// The protocols that connections may switch to. Other names than `websocket` have to be written out,
/// because the gateway neither counts nor checks what passes through a tunnel.
fn upgrade(section: &mut Section<'_>, is_dict: bool, diagnostics: &mut Diagnostics) -> Vec<String> {
    if !section.contains("upgrade") {
        let by_default = (!is_dict).then(|| "websocket".to_owned());
        return by_default.into_iter().collect();
    }
    let mut protocols = Vec::new();
    for text in section.strings("upgrade", diagnostics) {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
        if !text.value.is_empty() && text.value.bytes().all(is_token) {
            protocols.push(text.value.to_owned());
        } else {
            diagnostics.at(
                text.span,
                "this must be the name of a protocol, such as websocket",
            );
        }
    }
    protocols
}
