//! Header fields on their way through: which are removed, which are added.

use http::header::{
    CONNECTION, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE,
};
use smallvec::SmallVec;

use super::head_fields::HeadFields;
use super::proxy_fields::{self, Peer};
use crate::config::{HostHeader, UpstreamConfig};
use crate::limits::Caller;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a field concerns one connection only, besides those that `Connection` names.
pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes the fields that concern one connection only: those that RFC 9110 lists, and those that
/// `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have at most one of them, and looking up each name costs more than this.
    let names = headers.keys().filter(|name| is_hop_by_hop(name));
    let names: SmallVec<[HeaderName; 4]> = names.cloned().collect();
    if names.contains(&CONNECTION) {
        remove_named(headers);
    }
    let is_trailers = names.contains(&TE)
        && headers
            .get(TE)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in names {
        headers.remove(name);
    }
    if is_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes the fields that `Connection` names. Called before policies read the fields, so that they see
/// what the upstream will.
pub(super) fn remove_named(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(CONNECTION) {
        // The usual values are no names of fields, or of one that is removed in any case.
        let is_usual = |usual: &[u8]| value.as_bytes().eq_ignore_ascii_case(usual);
        if is_usual(b"keep-alive") || is_usual(b"close") {
            continue;
        }
        let Ok(value) = value.to_str() else { continue };
        let names = value.split(',').map(str::trim);
        named.extend(names.filter_map(|name| name.parse::<HeaderName>().ok()));
    }
    for name in named {
        // A client must not make the gateway drop what the upstream needs to tell callers apart.
        if name != HOST && name != X_FORWARDED_FOR && name != FORWARDED {
            headers.remove(name);
        }
    }
}

/// The protocol that a request asks to switch to.
pub(super) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(CONNECTION).iter();
    let is_asked = lines.any(|line| {
        let line = line.to_str().unwrap_or_default();
        line.split(',')
            .any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
    });
    is_asked.then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// Adds what makes a connection switch to another protocol.
pub(super) fn insert_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Prepares the fields of a request for an upstream.
pub(super) fn prepare_request(
    headers: &mut HeaderMap,
    fields: HeadFields,
    caller: &Caller,
    peer: Peer,
    upstream: &UpstreamConfig,
) {
    if fields.has(HeadFields::HOP_BY_HOP) {
        remove_hop_by_hop(headers);
    }
    if fields.has(HeadFields::EXPECT) {
        // hyper has answered, or will answer, `100 Continue` itself.
        headers.remove(EXPECT);
    }
    // HTTP/1.0 may have no host.
    let host = headers.get(HOST).cloned();
    if upstream.is_forwarded_added {
        proxy_fields::add(headers, host.as_ref(), caller, peer);
    }
    if upstream.host == HostHeader::Upstream || host.is_none() {
        let host = HeaderValue::from_str(upstream.authority.as_str());
        headers.insert(HOST, host.expect("an authority is a header value"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_concerns_one_connection_is_removed() {
        let mut all = headers(&[
            ("connection", "keep-alive, X-Secret"),
            ("connection", "x-other , host"),
            ("host", "shop"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic eDp5"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("x-kept", "1"),
        ]);
        remove_hop_by_hop(&mut all);
        let mut left: Vec<&str> = all.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "x-kept"]);
        let mut trailers = headers(&[("te", "Trailers")]);
        remove_hop_by_hop(&mut trailers);
        assert_eq!(trailers["te"], "trailers");
    }

    #[test]
    fn an_upgrade_needs_both_fields() {
        let asked = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert_eq!(upgrade_of(&asked).unwrap(), "websocket");
        assert_eq!(upgrade_of(&headers(&[("upgrade", "h2c")])), None);
        assert_eq!(upgrade_of(&headers(&[("connection", "upgrade")])), None);
    }
}
