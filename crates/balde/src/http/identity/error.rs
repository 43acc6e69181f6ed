//! Why a request has no usable key.

use crate::key::KEY_BYTES_MAX;

/// The maximum number of proxies between a client and this service.
pub(super) const HOPS_MAX: usize = 32;

/// The maximum length of one element of `X-Forwarded-For`, in bytes.
pub(super) const ELEMENT_BYTES_MAX: usize = 128;

/// The maximum length of one `Forwarded` line, in bytes. Because of its quotes a line has to be read
/// from the left.
pub(super) const FORWARDED_BYTES_MAX: usize = 8_192;

/// How to correct a service whose requests lack the peer's address.
#[cfg(feature = "axum")]
const HOW_TO_PROVIDE_PEERS: &str = "serve the axum app with `balde::http::serve(listener, app)`, \
    or pass `app.into_make_service_with_connect_info::<SocketAddr>()` to `axum::serve`; \
    with another server insert a `balde::http::PeerAddr` into the extensions of each request";
#[cfg(not(feature = "axum"))]
const HOW_TO_PROVIDE_PEERS: &str = "insert a `balde::http::PeerAddr` into the extensions of each \
    request, or set `Identity::peer_from`; for an axum app enable balde's feature `axum`";

/// Why a request has no usable key. No variant contains anything that the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The peer's address is unknown: no request extension contains it. This is a mistake of the
    /// service, not of the caller.
    #[error("the peer's address is missing from the request's extensions: {HOW_TO_PROVIDE_PEERS}")]
    UnknownPeer,
    /// A proxy reports the next address as `unknown`, as an obfuscated identifier, or as 0.0.0.0.
    #[error("a proxy does not reveal the address that it forwards for")]
    Hidden,
    /// A proxy's list of addresses is malformed at an address that is needed.
    #[error("a proxy's list of addresses is malformed")]
    Malformed,
    /// A proxy's list of addresses is too long.
    #[error(
        "a proxy's list of addresses is too long: more than {HOPS_MAX} proxies, an element of more \
         than {ELEMENT_BYTES_MAX} bytes, or a Forwarded line of more than {FORWARDED_BYTES_MAX} bytes"
    )]
    ChainTooLong,
    /// The header with the API key or the user id appears more than once.
    #[error("the header that identifies the client appears more than once")]
    DuplicateHeader,
    /// The API key or the user id is too long.
    #[error("the client's id has {bytes} bytes, more than the {KEY_BYTES_MAX} that a key can have")]
    TooLong {
        /// Its length, in bytes.
        bytes: usize,
    },
}
