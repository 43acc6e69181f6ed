//! Request extensions from which the client is identified.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ::http::Extensions;

use super::address::canonical;

pub(super) type PeerFn = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// A request extension: the API key that the service's authentication has verified. An empty key is
/// ignored.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

/// A request extension: the id of the user that the service's authentication has verified. An empty
/// id is ignored.
#[derive(Clone, PartialEq, Eq)]
pub struct UserId(pub String);

/// A request extension: the address of the peer, at the other end of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The peer's canonical address, from the given function or from the default extensions.
pub(super) fn address(peer: Option<&PeerFn>, extensions: &Extensions) -> Option<IpAddr> {
    let found = match peer {
        Some(peer) => peer(extensions),
        None => default_extension(extensions).map(SocketAddr::ip),
    };
    found.map(canonical)
}

/// The peer's address from [`PeerAddr`], or from axum's `ConnectInfo`.
fn default_extension(extensions: &Extensions) -> Option<&SocketAddr> {
    let found = extensions.get().map(|PeerAddr(address)| address);
    found.or_else(|| axum_extension(extensions))
}

/// The same if there is exactly one extension, so that the order of the lookups does not matter.
#[inline]
pub(super) fn only(extensions: &Extensions) -> Option<&SocketAddr> {
    let axum = axum_extension(extensions);
    axum.or_else(|| extensions.get().map(|PeerAddr(address)| address))
}

#[cfg(feature = "axum")]
#[inline]
fn axum_extension(extensions: &Extensions) -> Option<&SocketAddr> {
    let found = extensions.get();
    found.map(|axum::extract::ConnectInfo(address)| address)
}

#[cfg(not(feature = "axum"))]
#[inline]
fn axum_extension(_: &Extensions) -> Option<&SocketAddr> {
    None
}

// `Debug` shows no identity, because it may end up in a log.

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
