//! Who is asking: the API key, else the user's id, else the address.
//!
//! Nothing that a client can write decides its own key. So API keys and user ids come from the
//! service's own authentication, as extensions of the request ([`ApiKey`], [`UserId`]), or from a
//! header of a trusted proxy; and the address is the peer's, unless that is a trusted proxy.
//!
//! | Case | The key is |
//! |--|--|
//! | the peer is not a trusted proxy | the peer's address, whatever the headers say |
//! | it is, and names a chain of addresses | the right-most one that is not a trusted proxy |
//! | all of the chain are trusted proxies | the left-most: one of them is asking |
//! | it is, and names nobody | the peer's address: the proxy is asking |
//! | an address on the way there is `unknown`, hidden or garbage | none: what is left of it may be forged |
//! | nobody knows the peer | none |
//!
//! Only one of `X-Forwarded-For` and `Forwarded` is read, the one that the proxies write. A proxy
//! leaves the other as the client sent it, so reading both would let clients choose their key.

mod address;
mod chain;
mod key;
mod peer;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ::http::{Extensions, HeaderMap, HeaderName};

use self::address::Trusted;
use self::peer::PeerFn;
use crate::key::ShortKey;

pub use address::{BadProxy, TRUSTED_MAX};
pub use chain::{ELEMENT_BYTES_MAX, FORWARDED_BYTES_MAX, HOPS_MAX};
pub use key::{ClientKey, KeyKind, NoKey};
pub use peer::{ApiKey, PeerAddr, UserId};

/// Which header names the addresses that a request came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// `X-Forwarded-For`, as most proxies write it.
    #[default]
    XForwardedFor,
    /// `Forwarded`, of RFC 7239.
    Rfc7239,
    /// None: all that comes through one proxy has one key, unless it has an API key or user id.
    Ignored,
}

/// How callers are told apart.
///
/// ```
/// use balde::http::{Identity, PeerAddr};
/// use http::{Extensions, HeaderMap};
///
/// let identity = Identity::new().trust(["10.0.0.0/8"])?;
///
/// let mut extensions = Extensions::new();
/// extensions.insert(PeerAddr("10.1.2.3:4711".parse()?));
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.9.9.9".parse()?);
///
/// // The first address is whatever the client wrote; the last but one is who spoke to our proxies.
/// let key = identity.key(&headers, &extensions)?;
/// assert_eq!(key.as_ref(), b"ip:203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Identity {
    trusted: Trusted,
    forwarded: Forwarded,
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
    /// Trusts no proxy, so the address is always the peer's.
    pub fn new() -> Self {
        Self {
            trusted: Trusted::default(),
            forwarded: Forwarded::default(),
            api_key_header: None,
            user_id_header: None,
            ipv6_prefix: 64,
            peer: None,
        }
    }

    /// Trusts these proxies: addresses, or networks as `10.0.0.0/8`. They are added to those that
    /// are trusted already, [`TRUSTED_MAX`] in all.
    ///
    /// A proxy that is trusted must add the address of whoever speaks to it to the header, and must
    /// not pass on a header named by [`api_key_header`](Identity::api_key_header) or
    /// [`user_id_header`](Identity::user_id_header) as a client sent it.
    pub fn trust<N: AsRef<str>>(
        mut self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, BadProxy> {
        for network in networks {
            self.trusted.add(network.as_ref())?;
        }
        Ok(self)
    }

    /// Which header the trusted proxies write; `X-Forwarded-For` unless told otherwise.
    pub fn forwarded(mut self, forwarded: Forwarded) -> Self {
        self.forwarded = forwarded;
        self
    }

    /// Takes the API key from this header, where the peer is a trusted proxy, for gateways that
    /// authenticate. From anybody else it means nothing.
    pub fn api_key_header(mut self, name: HeaderName) -> Self {
        self.api_key_header = Some(name);
        self
    }

    /// Takes the user's id from this header, where the peer is a trusted proxy.
    pub fn user_id_header(mut self, name: HeaderName) -> Self {
        self.user_id_header = Some(name);
        self
    }

    /// How many leading bits of an IPv6 address make a caller: 64 unless told otherwise, because
    /// one subscriber has all the addresses under them; 1 to 128.
    ///
    /// # Panics
    ///
    /// With any other number: it is written in the program.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        assert!(
            (1..=128).contains(&bits),
            "an IPv6 prefix has 1 to 128 bits"
        );
        self.ipv6_prefix = bits;
        self
    }

    /// Takes the peer's address from wherever the server put it, and from nowhere else. Unless told
    /// otherwise it is in the extension [`PeerAddr`], or with the feature `axum` in its
    /// `ConnectInfo<SocketAddr>`.
    pub fn peer_from(
        mut self,
        peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Some(Arc::new(peer));
        self
    }

    /// The key of whoever sent this request, or why there is none.
    #[inline]
    pub fn key(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<ClientKey, NoKey> {
        match self.short_key(extensions) {
            Some(key) => Ok(ClientKey::of_short_address(key)),
            None => self.key_at_length(headers, extensions),
        }
    }

    /// The key of an IPv4 peer who can have no other one: no proxy is trusted, and the address is
    /// all that the server found out. For services that authenticate nobody this is every request,
    /// so it is worth a short way.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a key in registers would have to be put into memory for a call"
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

    fn key_at_length(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<ClientKey, NoKey> {
        let peer = peer::address(self.peer.as_deref(), extensions);
        let is_proxy = peer.is_some_and(|peer| self.trusted.contains(peer));
        // What only a trusted proxy may say.
        let said = |name: &Option<HeaderName>| match name {
            Some(name) if is_proxy => single(headers, name),
            _ => Ok(None),
        };
        if let Some(ApiKey(key)) = extensions.get().filter(|ApiKey(key)| !key.is_empty()) {
            return ClientKey::of_api_key(key.as_bytes());
        }
        if let Some(key) = said(&self.api_key_header)? {
            return ClientKey::of_api_key(key);
        }
        if let Some(UserId(id)) = extensions.get().filter(|UserId(id)| !id.is_empty()) {
            return ClientKey::of_user_id(id.as_bytes());
        }
        if let Some(id) = said(&self.user_id_header)? {
            return ClientKey::of_user_id(id);
        }
        let peer = peer.ok_or(NoKey::NoPeer)?;
        let address = if is_proxy {
            chain::client(peer, headers, self.forwarded, &self.trusted)?
        } else {
            peer
        };
        ClientKey::of_address(address, self.ipv6_prefix)
    }
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

/// The value of a header that must be there once: of two, one may be the client's.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, NoKey> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(NoKey::Repeated);
    }
    let text = line.as_bytes().trim_ascii();
    Ok((!text.is_empty()).then_some(text))
}
