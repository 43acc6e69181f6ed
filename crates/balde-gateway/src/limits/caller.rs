//! Who sent a request: its address, its certificate, its class.

use std::net::{IpAddr, SocketAddr};

use balde::http::PeerAddr;
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::config::CallerClass;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    pub(crate) is_tls: bool,
    pub(crate) certificate: Option<ClientCertificate>,
    /// The address as the SDK's identity expects it.
    pub(crate) extensions: Extensions,
    /// The address as a list element of `X-Forwarded-For`.
    pub(crate) address: HeaderValue,
    /// The beginning of its list element of `Forwarded`.
    forwarded: String,
    /// The host of the last request, with the whole list element.
    last_forwarded: Mutex<Option<(Box<[u8]>, HeaderValue)>>,
}

impl Caller {
    pub(crate) fn new(
        peer: SocketAddr,
        is_tls: bool,
        certificate: Option<ClientCertificate>,
    ) -> Self {
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddr(peer));
        let address = peer.ip().to_canonical();
        let protocol = if is_tls { "https" } else { "http" };
        let forwarded = match address {
            IpAddr::V4(address) => format!("for={address};proto={protocol}"),
            IpAddr::V6(address) => format!("for=\"[{address}]\";proto={protocol}"),
        };
        let address = HeaderValue::try_from(address.to_string());
        Self {
            peer,
            is_tls,
            certificate,
            extensions,
            address: address.expect("an address is a header value"),
            forwarded,
            last_forwarded: Mutex::default(),
        }
    }

    /// The list element of `Forwarded`, for a request to this host. The requests of a connection
    /// usually have the same.
    pub(crate) fn forwarded(&self, host: Option<&HeaderValue>) -> HeaderValue {
        let without_host = || {
            let element = HeaderValue::from_str(&self.forwarded);
            element.expect("an address and a protocol are a header value")
        };
        let Some(host) = host else {
            return without_host();
        };
        let mut last = self.last_forwarded.lock();
        if let Some((same, element)) = &*last
            && **same == *host.as_bytes()
        {
            return element.clone();
        }
        let quoted = host.to_str().ok();
        let quoted = quoted.filter(|host| !host.contains(['"', '\\']));
        let element = quoted.and_then(|host| {
            let element = [&self.forwarded, ";host=\"", host, "\""].concat();
            HeaderValue::from_maybe_shared(Bytes::from(element)).ok()
        });
        let element = element.unwrap_or_else(without_host);
        // A clone of the host would keep the whole buffer that it was read into.
        *last = Some((host.as_bytes().into(), element.clone()));
        element
    }
}

/// What is known of a client's certificate. The handshake has verified it.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// SHA-256 of the certificate, as text.
    pub(crate) name: String,
    pub(crate) fingerprint: [u8; 32],
    /// The ISPB that its subject names.
    pub(crate) ispb: Option<String>,
}

/// The class of a caller: that of its certificate, else that of a header from a trusted network, else
/// that of the route.
pub(crate) fn class_of<'c>(
    classes: &'c [CallerClass],
    caller: &Caller,
    headers: &HeaderMap,
    of_route: Option<usize>,
) -> Option<&'c str> {
    if classes.is_empty() {
        return None;
    }
    let by_certificate = caller.certificate.as_ref().and_then(|certificate| {
        let has = |class: &&CallerClass| class.certificates.contains(&certificate.fingerprint);
        classes.iter().find(has)
    });
    let address = caller.peer.ip().to_canonical();
    let by_header = || {
        let has = |class: &&CallerClass| has_header(class, address, headers);
        classes.iter().find(has)
    };
    let by_route = || of_route.and_then(|index| classes.get(index));
    let class = by_certificate.or_else(by_header).or_else(by_route)?;
    Some(&class.name)
}

/// Whether a request has the class's header. One that occurs twice could be a client's own.
fn has_header(class: &CallerClass, address: IpAddr, headers: &HeaderMap) -> bool {
    let Some((name, value)) = &class.header else {
        return false;
    };
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.is_some_and(|only| only.as_bytes() == value.as_bytes())
        && class
            .networks
            .iter()
            .any(|network| network.contains(&address))
}
