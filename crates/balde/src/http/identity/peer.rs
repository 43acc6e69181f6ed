//! What the service itself knows of a request and puts into its extensions.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ::http::Extensions;

use super::address::plain;

pub(super) type PeerFn = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// The API key that the service's authentication has found to be good. An empty one is none.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

/// The id of the user whom the service's authentication has recognised. An empty one is none.
#[derive(Clone, PartialEq, Eq)]
pub struct UserId(pub String);

/// The address at the other end of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Who is at the other end, as the server says.
pub(super) fn address(peer: Option<&PeerFn>, extensions: &Extensions) -> Option<IpAddr> {
    let found = match peer {
        Some(peer) => peer(extensions),
        None => usual(extensions),
    };
    found.map(plain)
}

fn usual(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    None
}

// Who somebody is belongs into no log.

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserId(..)")
    }
}

impl fmt::Debug for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerAddr(..)")
    }
}
