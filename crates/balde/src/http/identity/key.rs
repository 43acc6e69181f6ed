//! The bucket key of a client.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

use super::address::{embedded_v4, prefix_of};
use super::error::IdentityError;
use crate::hex;
use crate::key::{KEY_BYTES_MAX, ShortKey};

/// Enough for any address and any hash with their prefixes.
const INLINE_BYTES: usize = 72;

/// What identifies a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// An API key.
    ApiKey,
    /// A user id.
    UserId,
    /// An IPv4 address, or an IPv6 network.
    Address,
}

/// The bucket key of a client, to be passed to any limiter. Keys of different kinds never collide,
/// because each begins with its kind.
///
/// | Kind | Key |
/// |--|--|
/// | API key | `key:` and its SHA-256 in hexadecimal, because Redis stores keys in plain text |
/// | user id | `user:` and the id |
/// | IPv4 address | `ip:203.0.113.7` |
/// | IPv6 address | `ip:2001:db8:1:2::/64` |
/// | IPv6 network, for a second limit | `ip:2001:db8:1::/48` |
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
    pub(super) fn from_api_key(key: &[u8]) -> Result<Self, IdentityError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(IdentityError::TooLong { bytes: key.len() });
        }
        let mut text = Inline::new();
        let mut fits = text.push(b"key:");
        for byte in Sha256::digest(key) {
            fits &= text.push(&hex::lower(byte));
        }
        debug_assert!(fits, "a hash fits the inline buffer");
        Ok(Self::inline(KeyKind::ApiKey, text))
    }

    pub(super) fn from_user_id(id: &[u8]) -> Result<Self, IdentityError> {
        const PREFIX: &[u8] = b"user:";
        let bytes = id.len() + PREFIX.len();
        if bytes > KEY_BYTES_MAX {
            return Err(IdentityError::TooLong { bytes });
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

    pub(super) fn from_address(address: IpAddr, ipv6_prefix: u8) -> Result<Self, IdentityError> {
        let address = match address {
            IpAddr::V4(address) => return Self::from_v4(address),
            IpAddr::V6(address) => address,
        };
        if let Some(address) = embedded_v4(address) {
            return Self::from_v4(address);
        }
        Self::from_v6(address, ipv6_prefix)
    }

    /// The key of the network of `bits` leading bits that an IPv6 address is in; `None` for an IPv4
    /// address, also for one that an IPv6 address stands for.
    pub(super) fn from_network(address: IpAddr, bits: u8) -> Result<Option<Self>, IdentityError> {
        match address {
            IpAddr::V6(address) if embedded_v4(address).is_none() => {
                Self::from_v6(address, bits).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn from_v6(address: Ipv6Addr, bits: u8) -> Result<Self, IdentityError> {
        if address.is_unspecified() {
            return Err(IdentityError::Hidden);
        }
        let network = prefix_of(address, bits);
        let mut text = Inline::new();
        write!(text, "ip:{network}/{bits}").map_err(|_| IdentityError::Malformed)?;
        Ok(Self::inline(KeyKind::Address, text))
    }

    fn from_v4(address: Ipv4Addr) -> Result<Self, IdentityError> {
        let short = v4(address).ok_or(IdentityError::Hidden)?;
        Ok(Self::from_short_address(short))
    }

    /// The key of an IPv4 address, made by [`v4`].
    pub(crate) fn from_short_address(address: ShortKey) -> Self {
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

    /// What identifies the client.
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
        // Shows no identity, because it may end up in a log.
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

    /// Appends the bytes; returns false if they do not fit.
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

/// The key `ip:a.b.c.d`, or `None` for 0.0.0.0. Built in registers, because the standard formatter
/// takes longer than the rest of a decision; see [`ShortKey`].
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a function call would write the key to memory"
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

/// The digits of an octet followed by a dot, and the number of these bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_written_in_dotted_decimal() {
        let some = [0, 1, 9, 10, 42, 99, 100, 101, 199, 200, 255];
        for (a, b) in some.iter().flat_map(|a| some.map(|b| (*a, b))) {
            for (c, d) in some.iter().flat_map(|c| some.map(|d| (*c, d))) {
                let address = Ipv4Addr::new(a, b, c, d);
                match ClientKey::from_address(address.into(), 64) {
                    Ok(key) => assert_eq!(key.as_ref(), format!("ip:{address}").as_bytes()),
                    Err(why) => assert_eq!(
                        (address.is_unspecified(), why),
                        (true, IdentityError::Hidden)
                    ),
                }
            }
        }
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::new(7, octet, 7, octet);
            let key = ClientKey::from_address(address.into(), 64).unwrap();
            assert_eq!(key.as_ref(), format!("ip:{address}").as_bytes());
        }
    }
}
