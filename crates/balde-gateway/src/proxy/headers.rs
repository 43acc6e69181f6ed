//! Header fields on their way through: which are removed, which are added.

use bytes::Bytes;
use http::header::{
    CONNECTION, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;

use crate::config::{HostHeader, UpstreamConfig};
use crate::limits::Caller;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The fields that concern one connection only, besides `Connection` and those that it names.
static HOP_BY_HOP: [HeaderName; 8] = [
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes the fields that concern one connection only: those that RFC 9110 lists, and those that
/// `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(',').map(str::trim))
            // The usual values are no names of fields, or of one that is removed in any case.
            .filter(|name| !is_either(name, ["close", "keep-alive"]))
            .filter_map(|name| name.parse().ok())
            .collect();
        for name in named {
            // A client must not make the gateway drop what the upstream needs to tell callers apart.
            if name != HOST && name != X_FORWARDED_FOR && name != FORWARDED {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    let is_trailers = headers
        .get(TE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    // Most messages have none of these, and comparing the names costs less than looking each one up.
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
    if is_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn is_either(word: &str, words: [&str; 2]) -> bool {
    words.iter().any(|one| word.eq_ignore_ascii_case(one))
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
    authority: Option<&Authority>,
    caller: &Caller,
    upstream: &UpstreamConfig,
) {
    remove_hop_by_hop(headers);
    // hyper has answered, or will answer, `100 Continue` itself.
    headers.remove(EXPECT);
    // HTTP/2 has the host in the URI.
    if !headers.contains_key(HOST)
        && let Some(authority) = authority
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    if upstream.is_forwarded_added {
        add_forwarded(headers, caller);
    }
    if upstream.host == HostHeader::Upstream || !headers.contains_key(HOST) {
        let host = HeaderValue::from_str(upstream.authority.as_str());
        headers.insert(HOST, host.expect("an authority is a header value"));
    }
}

fn add_forwarded(headers: &mut HeaderMap, caller: &Caller) {
    append(headers, &X_FORWARDED_FOR, caller.address.clone());
    let host = headers.get(HOST).cloned();
    let quoted = host.as_ref().and_then(|host| host.to_str().ok());
    let quoted = quoted.filter(|host| !host.contains(['"', '\\']));
    let element = match quoted {
        Some(host) => [&caller.forwarded, ";host=\"", host, "\""].concat(),
        None => caller.forwarded.clone(),
    };
    if let Ok(element) = HeaderValue::from_maybe_shared(Bytes::from(element)) {
        append(headers, &FORWARDED, element);
    }
    let protocol = if caller.is_tls { "https" } else { "http" };
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(protocol));
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Appends to a list. Several lines form one list, so the last line is extended.
fn append(headers: &mut HeaderMap, name: &HeaderName, element: HeaderValue) {
    let mut lines = headers.get_all(name).iter().peekable();
    if lines.peek().is_none() {
        headers.insert(name, element);
        return;
    }
    let mut list = Vec::new();
    for line in lines {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
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

    #[test]
    fn the_peer_is_appended_to_what_the_client_sent() {
        let caller = Caller::new("[2001:db8::1]:4711".parse().unwrap(), true, None);
        let mut all = headers(&[
            ("host", "shop.example:8443"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "gopher"),
        ]);
        add_forwarded(&mut all, &caller);
        assert_eq!(all["x-forwarded-for"], "6.6.6.6, 203.0.113.7, 2001:db8::1");
        assert_eq!(
            all["forwarded"],
            "for=\"[2001:db8::1]\";proto=https;host=\"shop.example:8443\""
        );
        assert_eq!(all["x-forwarded-proto"], "https");
        assert_eq!(all["x-forwarded-host"], "shop.example:8443");
    }
}
