//! Identifying the client that sent a request: by API key, else by user id, else by IP address.
//!
//! A client cannot choose its own key. API keys and user ids come from the service's own
//! authentication, as request extensions ([`ApiKey`], [`UserId`]), or from a header that a trusted
//! proxy wrote. The address is the peer's, unless the peer is a trusted proxy:
//!
//! | Case | Key |
//! |--|--|
//! | the peer is not a trusted proxy | the peer's address; headers are ignored |
//! | a trusted proxy sends a chain of addresses | the right-most address that is not a trusted proxy |
//! | all addresses of the chain are trusted proxies | the left-most address: that proxy is the client |
//! | a trusted proxy sends no chain | the peer's address: the proxy is the client |
//! | an address that has to be read is `unknown`, obfuscated or malformed | none: everything to its left may be forged |
//! | the peer is unknown | none |
//!
//! Only one of `X-Forwarded-For` and `Forwarded` is read: the one that the proxies write. A proxy
//! forwards the other one as the client sent it, so reading both would let clients choose their key.

mod address;
mod chain;
mod error;
mod key;
mod peer;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ::http::{Extensions, HeaderMap, HeaderName};

use self::address::TrustedProxies;
use self::peer::PeerFn;
use crate::key::ShortKey;

pub use address::TrustedProxyError;
pub use chain::{ForwardedHeader, is_forwarded};
pub use error::IdentityError;
pub use key::{ClientKey, KeyKind};
pub use peer::{ApiKey, PeerAddr, UserId};

/// Identifies the client that sent a request and returns its bucket key.
///
/// ```
/// use balde::http::{Identity, PeerAddr};
/// use http::{Extensions, HeaderMap};
///
/// let identity = Identity::new().trusted_proxies(["10.0.0.0/8"])?;
///
/// let mut extensions = Extensions::new();
/// extensions.insert(PeerAddr("10.1.2.3:4711".parse()?));
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.9.9.9".parse()?);
///
/// // The client may have forged the first address. The second one connected to our proxies.
/// let key = identity.key(&headers, &extensions)?;
/// assert_eq!(key.as_ref(), b"ip:203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Identity {
    trusted: TrustedProxies,
    forwarded: ForwardedHeader,
    api_key_header: Option<HeaderName>,
    user_id_header: Option<HeaderName>,
    ipv6_prefix: u8,
    peer: Option<Arc<PeerFn>>,
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

impl Identity {
    /// Creates an identity that trusts no proxy: the address is always the peer's.
    pub fn new() -> Self {
        Self {
            trusted: TrustedProxies::default(),
            forwarded: ForwardedHeader::default(),
            api_key_header: None,
            user_id_header: None,
            ipv6_prefix: 64,
            peer: None,
        }
    }

    /// Adds trusted proxies: addresses, or networks such as `10.0.0.0/8`, at most 1,024 in total.
    ///
    /// A trusted proxy must append the address of its own peer to the
    /// [`forwarded_header`](Identity::forwarded_header). It must remove the headers named by
    /// [`api_key_header`](Identity::api_key_header) and
    /// [`user_id_header`](Identity::user_id_header) from what clients send.
    ///
    /// # Errors
    ///
    /// Returns an error if a network is invalid, contains all addresses, or is one too many.
    pub fn trusted_proxies<N: AsRef<str>>(
        mut self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, TrustedProxyError> {
        for network in networks {
            self.trusted.add(network.as_ref())?;
        }
        Ok(self)
    }

    /// Sets the header in which trusted proxies list addresses. The default is `X-Forwarded-For`.
    pub fn forwarded_header(mut self, forwarded: ForwardedHeader) -> Self {
        self.forwarded = forwarded;
        self
    }

    /// Takes the API key from this header if the peer is a trusted proxy, for gateways that
    /// authenticate. The header is ignored if it comes from any other peer.
    pub fn api_key_header(mut self, name: HeaderName) -> Self {
        self.api_key_header = Some(name);
        self
    }

    /// Takes the user id from this header if the peer is a trusted proxy. The header is ignored if it
    /// comes from any other peer.
    pub fn user_id_header(mut self, name: HeaderName) -> Self {
        self.user_id_header = Some(name);
        self
    }

    /// Sets how many leading bits of an IPv6 address identify a client, 1 to 128. The default is 64,
    /// because one subscriber usually has a whole /64 network. An IPv4-mapped, NAT64 or
    /// IPv4-compatible address is counted as the IPv4 address inside.
    ///
    /// # Panics
    ///
    /// Panics if `bits` is not in 1 to 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        assert_prefix(bits);
        self.ipv6_prefix = bits;
        self
    }

    /// Sets the function that finds the peer's address in the request's extensions. By default it is
    /// taken from [`PeerAddr`] or, with the feature `axum`, from axum's `ConnectInfo<SocketAddr>`.
    pub fn peer_from(
        mut self,
        peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// Returns true if a peer with this address is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.contains(address::canonical(peer))
    }

    /// The headers that identify clients if a trusted proxy sent them:
    /// [`api_key_header`](Identity::api_key_header) and [`user_id_header`](Identity::user_id_header).
    /// A proxy removes them from the requests of everybody else.
    pub fn proxy_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.api_key_header.iter().chain(&self.user_id_header)
    }

    /// Returns the key of the client that sent a request with these headers and extensions.
    ///
    /// # Errors
    ///
    /// Returns an error if every possible key could have been forged by the client, or if there is
    /// none.
    #[inline]
    pub fn key(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<ClientKey, IdentityError> {
        match self.short_key(extensions) {
            Some(key) => Ok(ClientKey::from_short_address(key)),
            None => self.key_general(headers, extensions),
        }
    }

    /// The key of an IPv4 peer that can have no other key: no proxy is trusted, and the address is the
    /// only extension. For services without authentication this is every request, so it has a fast
    /// path.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a function call would write the key to memory"
    )]
    pub(crate) fn short_key(&self, extensions: &Extensions) -> Option<ShortKey> {
        if extensions.len() != 1 || self.peer.is_some() || !self.trusted.is_empty() {
            return None;
        }
        match peer::only(extensions)? {
            SocketAddr::V4(address) => key::v4(*address.ip()),
            SocketAddr::V6(_) => None,
        }
    }

    /// Returns the key of the IPv6 network, of `bits` leading bits, that the client's address is in.
    /// `None` for clients that are identified by an IPv4 address, an API key or a user id.
    ///
    /// It is for a second limit beside that of each client: one site usually has a /56 or a /48, so
    /// it can use hundreds of /64 networks. See
    /// [`LimitRule::per_ipv6_network`](super::LimitRule::per_ipv6_network).
    ///
    /// # Errors
    ///
    /// As [`key`](Identity::key).
    ///
    /// # Panics
    ///
    /// Panics if `bits` is not in 1 to 128.
    pub fn ipv6_network_key(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        bits: u8,
    ) -> Result<Option<ClientKey>, IdentityError> {
        assert_prefix(bits);
        match self.client(headers, extensions)? {
            Client::Address(address) => ClientKey::from_network(address, bits),
            Client::ApiKey(_) | Client::UserId(_) => Ok(None),
        }
    }

    fn key_general(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<ClientKey, IdentityError> {
        match self.client(headers, extensions)? {
            Client::ApiKey(key) => ClientKey::from_api_key(key),
            Client::UserId(id) => ClientKey::from_user_id(id),
            Client::Address(address) => ClientKey::from_address(address, self.ipv6_prefix),
        }
    }

    fn client<'a>(
        &self,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
    ) -> Result<Client<'a>, IdentityError> {
        let peer = peer::address(self.peer.as_deref(), extensions);
        let is_proxy = peer.is_some_and(|peer| self.trusted.contains(peer));
        // These headers are honoured only if a trusted proxy sent them.
        let from_proxy = |name: &Option<HeaderName>| match name {
            Some(name) if is_proxy => single(headers, name),
            _ => Ok(None),
        };
        if let Some(ApiKey(key)) = extensions.get().filter(|ApiKey(key)| !key.is_empty()) {
            return Ok(Client::ApiKey(key.as_bytes()));
        }
        if let Some(key) = from_proxy(&self.api_key_header)? {
            return Ok(Client::ApiKey(key));
        }
        if let Some(UserId(id)) = extensions.get().filter(|UserId(id)| !id.is_empty()) {
            return Ok(Client::UserId(id.as_bytes()));
        }
        if let Some(id) = from_proxy(&self.user_id_header)? {
            return Ok(Client::UserId(id));
        }
        let peer = peer.ok_or(IdentityError::UnknownPeer)?;
        let address = if is_proxy {
            chain::client(peer, headers, self.forwarded, &self.trusted)?
        } else {
            peer
        };
        Ok(Client::Address(address))
    }
}

/// What identifies a client.
enum Client<'a> {
    ApiKey(&'a [u8]),
    UserId(&'a [u8]),
    Address(IpAddr),
}

pub(crate) fn assert_prefix(bits: u8) {
    assert!(
        (1..=128).contains(&bits),
        "an IPv6 prefix must have 1 to 128 bits"
    );
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("trusted", &self.trusted)
            .field("forwarded", &self.forwarded)
            .field("api_key_header", &self.api_key_header)
            .field("user_id_header", &self.user_id_header)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

/// The value of a header that may appear only once: of two values, one may be the client's.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, IdentityError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(IdentityError::DuplicateHeader);
    }
    let text = line.as_bytes().trim_ascii();
    Ok((!text.is_empty()).then_some(text))
}
