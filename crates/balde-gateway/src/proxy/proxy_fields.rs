//! Header fields that only a proxy in front of the gateway may write: addresses, identities, and the
//! host and path that a request had before.

use balde::http::Identity;
use http::header::{Entry, FORWARDED, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::head_fields::HeadFields;
use crate::config::{CallerClass, Config};
use crate::limits::Caller;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Which peers are proxies, and which header fields only they may write.
#[derive(Debug)]
pub(crate) struct ProxyFields {
    identity: Identity,
    /// Their names as the configuration has them: API key and user.
    identity_headers: Vec<HeaderName>,
    classes: Vec<CallerClass>,
}

/// Whether what a peer says of others is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Trusted,
    Untrusted,
}

impl ProxyFields {
    pub(crate) fn new(config: &Config) -> Self {
        let identity = config.service.identity().clone();
        Self {
            identity_headers: identity.proxy_headers().cloned().collect(),
            identity,
            classes: config.classes.clone(),
        }
    }

    /// Removes the fields that the peer may not write, before anything reads them. Of a trusted proxy,
    /// these are only those whose names have underscores, because many servers read an underscore as a
    /// hyphen and many proxies do not.
    pub(super) fn remove_forged(
        &self,
        headers: &mut HeaderMap,
        fields: HeadFields,
        caller: &Caller,
    ) -> Peer {
        let address = caller.peer.ip().to_canonical();
        let peer = if self.identity.trusts(address) {
            Peer::Trusted
        } else {
            Peer::Untrusted
        };
        let has_own_names = !self.identity_headers.is_empty() || !self.classes.is_empty();
        if !has_own_names && !fields.has(HeadFields::PROXY) {
            return peer;
        }
        let is_forged = |name: &&HeaderName| {
            let text = name.as_str();
            if text.contains('_') {
                let spelled = text.replace('_', "-");
                return self.is_from_proxy(&spelled) || spelled.starts_with("pi-");
            }
            (peer == Peer::Untrusted && self.is_from_proxy(text))
                || self.is_class_header_of_others(text, address)
        };
        let forged: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_forged).cloned().collect();
        for name in forged {
            headers.remove(name);
        }
        peer
    }

    fn is_from_proxy(&self, name: &str) -> bool {
        is_well_known(name) || self.identity_headers.iter().any(|own| own.as_str() == name)
    }

    /// Whether the field names the class of callers, and the peer is in none of the networks that may
    /// write it.
    fn is_class_header_of_others(&self, name: &str, address: std::net::IpAddr) -> bool {
        let is_called =
            |class: &&CallerClass| class.header.as_ref().is_some_and(|(own, _)| own == name);
        let mut classes = self.classes.iter().filter(is_called).peekable();
        classes.peek().is_some()
            && !classes.any(|class| class.networks.iter().any(|net| net.contains(&address)))
    }
}

/// Whether proxies write this field by convention: the client's address, certificate or identity, or the
/// host, path and method that a request had before.
pub(super) fn is_well_known(name: &str) -> bool {
    match name.as_bytes() {
        [b'x', b'-', ..] => {
            let rest = &name[2..];
            rest.starts_with("forwarded-")
                || rest.starts_with("original-")
                || rest.starts_with("ssl-client-")
                || rest.starts_with("auth-request-")
                || matches!(
                    rest,
                    "real-ip"
                        | "client-ip"
                        | "cluster-client-ip"
                        | "remote-ip"
                        | "remote-addr"
                        | "remote-user"
                        | "rewrite-url"
                        | "host"
                        | "client-cert"
                        | "client-dn"
                        | "client-verify"
                        | "envoy-external-address"
                        | "envoy-original-path"
                        | "arr-clientcert"
                )
        }
        [b'f' | b't' | b'c' | b's' | b'r', ..] => matches!(
            name,
            "forwarded"
                | "true-client-ip"
                | "client-ip"
                | "client-cert"
                | "client-cert-chain"
                | "cf-connecting-ip"
                | "fastly-client-ip"
                | "ssl-client-cert"
                | "ssl-client-verify"
                | "remote-user"
        ),
        _ => false,
    }
}

/// Adds the peer's address, protocol and host. What a trusted proxy wrote is continued, what anybody
/// else wrote has been removed.
pub(super) fn add(
    headers: &mut HeaderMap,
    host: Option<&HeaderValue>,
    caller: &Caller,
    peer: Peer,
) {
    if peer == Peer::Untrusted {
        // None of the fields is there.
        headers.insert(X_FORWARDED_FOR, caller.address.clone());
        headers.insert(FORWARDED, caller.forwarded(host));
        headers.insert(X_FORWARDED_PROTO, protocol(caller));
        if let Some(host) = host {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        return;
    }
    append(headers, X_FORWARDED_FOR, caller.address.clone());
    // A field that does not parse could hide what is appended to it, for instance within a quote.
    if !is_valid_forwarded(headers) {
        headers.remove(FORWARDED);
    }
    append(headers, FORWARDED, caller.forwarded(host));
    set_unless_kept(headers, X_FORWARDED_PROTO, Some(protocol(caller)));
    set_unless_kept(headers, X_FORWARDED_HOST, host.cloned());
}

fn protocol(caller: &Caller) -> HeaderValue {
    HeaderValue::from_static(if caller.is_tls { "https" } else { "http" })
}

/// Keeps a field with one value that is not empty, and sets or removes any other.
fn set_unless_kept(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match (headers.entry(name), value) {
        (Entry::Vacant(field), Some(value)) => drop(field.insert(value)),
        (Entry::Vacant(_), None) => {}
        (Entry::Occupied(mut field), value) => {
            let mut lines = field.iter();
            let is_kept =
                lines.next().is_some_and(|first| !first.is_empty()) && lines.next().is_none();
            match value {
                _ if is_kept => {}
                Some(value) => drop(field.insert(value)),
                None => drop(field.remove_entry_mult()),
            }
        }
    }
}

fn is_valid_forwarded(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(FORWARDED).iter();
    lines.all(|line| balde::http::is_forwarded(line.as_bytes()))
}

/// Appends to a list. Several lines form one list, so the last line is extended.
fn append(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue) {
    let mut lines = match headers.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(element);
            return;
        }
        Entry::Occupied(lines) => lines,
    };
    let mut list = Vec::new();
    for line in lines.iter() {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        lines.insert(list);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = "[[listener]]\naddress = '127.0.0.1:0'\n\
        [[upstream]]\nname = 'a'\nurl = 'http://127.0.0.1:1'\n\
        [[route]]\npath = '/'\nupstream = 'a'\n\
        [identity]\ntrusted_proxies = ['10.0.0.0/8']\nuser_id_header = 'x-user'\n\
        api_key_header = 'x-api-key'\n\
        [[class]]\nname = 'live'\nheader = 'x-class'\nvalue = 'live'\nnetworks = ['10.1.0.0/16']\n";

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn left(lines: &[(&str, &str)], peer: &str) -> (Vec<String>, Peer) {
        let config = Config::parse(FILE, "gateway.toml", Path::new(""), |_| None).unwrap();
        let caller = Caller::new(peer.parse().unwrap(), false, None);
        let mut headers = headers(lines);
        let fields = HeadFields::of(&headers);
        let peer = ProxyFields::new(&config).remove_forged(&mut headers, fields, &caller);
        let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        (names, peer)
    }

    #[test]
    fn only_a_trusted_proxy_may_say_who_the_client_is() {
        let lines = [
            ("accept", "*/*"),
            ("client-cert", ":AAAA:"),
            ("forwarded", "for=6.6.6.6"),
            ("true-client-ip", "6.6.6.6"),
            ("x-api-key", "k"),
            ("x-class", "live"),
            ("x-forwarded-client-cert", "By=x"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("x-original-url", "/search"),
            ("x-real-ip", "6.6.6.6"),
            ("x-user", "ana"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x_user", "ana"),
        ];
        let (names, peer) = left(&lines, "203.0.113.7:1");
        assert_eq!((names, peer), (vec!["accept".to_owned()], Peer::Untrusted));
        let (names, peer) = left(&lines, "10.1.2.3:1");
        let kept = lines.iter().map(|(name, _)| (*name).to_owned());
        let kept: Vec<String> = kept.filter(|name| !name.contains('_')).collect();
        assert_eq!((names, peer), (kept, Peer::Trusted));
        // A trusted proxy outside of the class's networks.
        let (names, _) = left(&lines, "10.2.2.3:1");
        assert!(!names.contains(&"x-class".to_owned()), "{names:?}");
    }

    #[test]
    fn the_peer_is_appended_to_what_a_trusted_proxy_sent() {
        let caller = Caller::new("[2001:db8::1]:4711".parse().unwrap(), false, None);
        let mut all = headers(&[
            ("host", "shop.example:8443"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=203.0.113.7"),
        ]);
        let host = all.get("host").cloned();
        add(&mut all, host.as_ref(), &caller, Peer::Trusted);
        assert_eq!(all["x-forwarded-for"], "6.6.6.6, 203.0.113.7, 2001:db8::1");
        assert_eq!(
            all["forwarded"],
            "for=203.0.113.7, for=\"[2001:db8::1]\";proto=http;host=\"shop.example:8443\""
        );
        assert_eq!(all["x-forwarded-proto"], "https");
        assert_eq!(all["x-forwarded-host"], "shop.example:8443");
    }

    #[test]
    fn a_field_that_does_not_parse_is_replaced() {
        let caller = Caller::new("10.1.2.3:1".parse().unwrap(), false, None);
        for open in ["for=\"6.6.6.6", "for=\"a\\", "for", "for=a b", ";;"] {
            let mut all = headers(&[("forwarded", open)]);
            add(&mut all, None, &caller, Peer::Trusted);
            assert_eq!(all["forwarded"], "for=10.1.2.3;proto=http", "{open}");
            assert_eq!(all.get_all("forwarded").iter().count(), 1);
        }
    }
}
