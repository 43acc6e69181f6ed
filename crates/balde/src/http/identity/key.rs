//! The key of a caller, and why there may be none.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};

use sha2::{Digest, Sha256};

use super::address::network_of;
use super::chain::{ELEMENT_BYTES_MAX, FORWARDED_BYTES_MAX, HOPS_MAX};
use crate::key::{KEY_BYTES_MAX, ShortKey};

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
    Short(ShortKey),
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
        let address = match address {
            IpAddr::V4(address) => return Self::of_v4(address),
            IpAddr::V6(address) => address,
        };
        if address.is_unspecified() {
            return Err(NoKey::Hidden);
        }
        let network = network_of(address, ipv6_prefix);
        let mut text = Inline::new();
        write!(text, "ip:{network}/{ipv6_prefix}").map_err(|_| NoKey::Malformed)?;
        Ok(Self::inline(KeyKind::Address, text))
    }

    fn of_v4(address: Ipv4Addr) -> Result<Self, NoKey> {
        let short = v4(address).ok_or(NoKey::Hidden)?;
        Ok(Self::of_short_address(short))
    }

    /// The key of an address that [`v4`] made.
    pub(crate) fn of_short_address(address: ShortKey) -> Self {
        Self {
            kind: KeyKind::Address,
            bytes: Bytes::Short(address),
        }
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
            Bytes::Short(short) => short.as_bytes(),
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

/// `ip:` and the address, unless it is nobody's. The formatter would take longer than the rest of a
/// decision, and bytes in memory would have to be waited for: see [`ShortKey`].
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a key in registers would have to be put into memory for a call"
)]
pub(super) fn v4(address: Ipv4Addr) -> Option<ShortKey> {
    if address.is_unspecified() {
        return None;
    }
    let [a, b, c, d] = address.octets();
    let ((a, a_bytes), (b, b_bytes)) = (octet(a), octet(b));
    let ((c, c_bytes), (d, d_bytes)) = (octet(c), octet(d));
    let first = u128::from(u32::from_le_bytes(*b"ip:\0"))
        | u128::from(a) << 24
        | u128::from(b) << (24 + 8 * a_bytes);
    // Without the last dot.
    let dot = u64::from(b'.') << (8 * (d_bytes - 1));
    let second = u64::from(c) | (u64::from(d) ^ dot) << (8 * c_bytes);
    // The second half begins 56 to 88 bits after the first, and may go beyond its 128.
    let bits = 8 * (3 + a_bytes + b_bytes);
    let low = first | u128::from(second) << bits;
    let beyond = second.checked_shr(128 - bits).unwrap_or(0);
    let (low_word, high_word) = (lower_half(low), lower_half(low >> 64));
    let length = 3 + a_bytes + b_bytes + c_bytes + d_bytes - 1;
    let length = u8::try_from(length).unwrap_or(0);
    Some(ShortKey::from_words([low_word, high_word, beyond], length))
}

/// An octet as its digits and a dot, and how many bytes those are.
#[inline]
fn octet(octet: u8) -> (u32, u32) {
    let digits = 1 + u32::from(octet >= 10) + u32::from(octet >= 100);
    (OCTETS[usize::from(octet)], digits + 1)
}

static OCTETS: [u32; 256] = {
    let mut all = [0; 256];
    let mut octet = 0_u8;
    loop {
        let [hundreds, tens, ones] = [octet / 100, octet / 10 % 10, octet % 10];
        let [hundreds, tens, ones] = [b'0' + hundreds, b'0' + tens, b'0' + ones];
        all[octet as usize] = u32::from_le_bytes(match octet {
            0..10 => [ones, b'.', 0, 0],
            10..100 => [tens, ones, b'.', 0],
            100.. => [hundreds, tens, ones, b'.'],
        });
        if octet == u8::MAX {
            break all;
        }
        octet += 1;
    }
};

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
fn lower_half(wide: u128) -> u64 {
    wide as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_everybody_writes_it() {
        let some = [0, 1, 9, 10, 42, 99, 100, 101, 199, 200, 255];
        for (a, b) in some.iter().flat_map(|a| some.map(|b| (*a, b))) {
            for (c, d) in some.iter().flat_map(|c| some.map(|d| (*c, d))) {
                let address = Ipv4Addr::new(a, b, c, d);
                match ClientKey::of_address(address.into(), 64) {
                    Ok(key) => assert_eq!(key.as_ref(), format!("ip:{address}").as_bytes()),
                    Err(why) => assert_eq!((address.is_unspecified(), why), (true, NoKey::Hidden)),
                }
            }
        }
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::new(7, octet, 7, octet);
            let key = ClientKey::of_address(address.into(), 64).unwrap();
            assert_eq!(key.as_ref(), format!("ip:{address}").as_bytes());
        }
    }
}
