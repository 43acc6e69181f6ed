//! What the service itself knows of a request and puts into its extensions.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ::http::Extensions;

use super::address::canonical;

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
        None => usual(extensions).map(SocketAddr::ip),
    };
    found.map(canonical)
}

/// Where servers put it, unless somebody says otherwise.
fn usual(extensions: &Extensions) -> Option<&SocketAddr> {
    let told = extensions.get().map(|PeerAddr(address)| address);
    told.or_else(|| of_axum(extensions))
}

/// The same, where there is but one extension: then it does not matter which is looked for first.
#[inline]
pub(super) fn only(extensions: &Extensions) -> Option<&SocketAddr> {
    let axum = of_axum(extensions);
    axum.or_else(|| extensions.get().map(|PeerAddr(address)| address))
}

#[cfg(feature = "axum")]
#[inline]
fn of_axum(extensions: &Extensions) -> Option<&SocketAddr> {
    let found = extensions.get();
    found.map(|axum::extract::ConnectInfo(address)| address)
}

#[cfg(not(feature = "axum"))]
#[inline]
fn of_axum(_: &Extensions) -> Option<&SocketAddr> {
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
