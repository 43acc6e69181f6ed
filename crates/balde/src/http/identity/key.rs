//! The key of a caller, and why there may be none.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::address::network_of;
use super::chain::{ELEMENT_BYTES_MAX, FORWARDED_BYTES_MAX, HOPS_MAX};
use crate::error::KEY_BYTES_MAX;

/// Room for any address and any hash, with what is put before it.
const INLINE_BYTES: usize = 72;

/// What a caller is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// An API key.
    ApiKey,
    /// A user's id.
    UserId,
    /// An address, or the network around it.
    Address,
}

/// The key of a caller, for any limiter. Keys of different kinds are never the same: each begins
/// with its kind.
///
/// | Kind | Key |
/// |--|--|
/// | API key | `key:` and the SHA-256 of it in hexadecimal, because keys are kept in clear in Redis |
/// | user's id | `user:` and the id |
/// | IPv4 address | `ip:203.0.113.7` |
/// | IPv6 address | `ip:2001:db8:1:2::/64` |
#[derive(Clone)]
pub struct ClientKey {
    kind: KeyKind,
    bytes: Bytes,
}

#[derive(Clone)]
enum Bytes {
    Inline(Inline),
    Heap(Vec<u8>),
}

#[derive(Clone, Copy)]
struct Inline {
    length: u8,
    bytes: [u8; INLINE_BYTES],
}

impl ClientKey {
    pub(super) fn of_api_key(key: &[u8]) -> Result<Self, NoKey> {
        if key.len() > KEY_BYTES_MAX {
            return Err(NoKey::TooLong { bytes: key.len() });
        }
        let mut text = Inline::new();
        let mut fits = text.push(b"key:");
        for byte in Sha256::digest(key) {
            fits &= text.push(&[hex(byte >> 4), hex(byte & 15)]);
        }
        debug_assert!(fits, "a hash has its room");
        Ok(Self::inline(KeyKind::ApiKey, text))
    }

    pub(super) fn of_user_id(id: &[u8]) -> Result<Self, NoKey> {
        const PREFIX: &[u8] = b"user:";
        let bytes = id.len() + PREFIX.len();
        if bytes > KEY_BYTES_MAX {
            return Err(NoKey::TooLong { bytes });
        }
        let mut text = Inline::new();
        if text.push(PREFIX) && text.push(id) {
            return Ok(Self::inline(KeyKind::UserId, text));
        }
        Ok(Self {
            kind: KeyKind::UserId,
            bytes: Bytes::Heap([PREFIX, id].concat()),
        })
    }

    pub(super) fn of_address(address: IpAddr, ipv6_prefix: u8) -> Result<Self, NoKey> {
        if address.is_unspecified() {
            return Err(NoKey::Hidden);
        }
        let mut text = Inline::new();
        let written = match address {
            IpAddr::V4(address) => write!(text, "ip:{address}"),
            IpAddr::V6(address) => {
                let network = network_of(address, ipv6_prefix);
                write!(text, "ip:{network}/{ipv6_prefix}")
            }
        };
        written.map_err(|_| NoKey::Malformed)?;
        Ok(Self::inline(KeyKind::Address, text))
    }

    const fn inline(kind: KeyKind, text: Inline) -> Self {
        Self {
            kind,
            bytes: Bytes::Inline(text),
        }
    }

    /// What the caller is told apart by.
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }
}

impl AsRef<[u8]> for ClientKey {
    fn as_ref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline(inline) => &inline.bytes[..usize::from(inline.length)],
            Bytes::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for ClientKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for ClientKey {}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Who somebody is belongs into no log.
        f.debug_struct("ClientKey")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Inline {
    const fn new() -> Self {
        Self {
            length: 0,
            bytes: [0; INLINE_BYTES],
        }
    }

    /// Whether there was room.
    fn push(&mut self, more: &[u8]) -> bool {
        let length = usize::from(self.length);
        let Some(room) = self.bytes.get_mut(length..length + more.len()) else {
            return false;
        };
        room.copy_from_slice(more);
        self.length = u8::try_from(length + more.len()).unwrap_or(u8::MAX);
        true
    }
}

impl fmt::Write for Inline {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).then_some(()).ok_or(fmt::Error)
    }
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit & 15)]
}

/// Why a request has no usable key. None of them repeats what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoKey {
    /// Nobody knows the peer: no extension of the request has its address.
    NoPeer,
    /// A proxy names the next address as unknown, hides it, or names none in particular.
    Hidden,
    /// A proxy's list of addresses cannot be read where it matters.
    Malformed,
    /// The list of addresses is too long where it matters.
    ChainTooLong,
    /// The header for the API key or the user's id is there more than once.
    Repeated,
    /// The API key or user's id is too long.
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer => f.write_str(
                "the peer's address is not known; put a PeerAddr into the request's extensions",
            ),
            Self::Hidden => f.write_str("a proxy does not say whom it speaks for"),
            Self::Malformed => f.write_str("a proxy's list of addresses cannot be read"),
            Self::ChainTooLong => write!(
                f,
                "a proxy's list of addresses is too long: more than {HOPS_MAX} proxies, an address \
                 of more than {ELEMENT_BYTES_MAX} bytes, or a Forwarded line of more than \
                 {FORWARDED_BYTES_MAX}"
            ),
            Self::Repeated => {
                f.write_str("the header that names the caller is there more than once")
            }
            Self::TooLong { bytes } => write!(
                f,
                "what names the caller has {bytes} bytes, more than fit a key of {KEY_BYTES_MAX}"
            ),
        }
    }
}

impl std::error::Error for NoKey {}
