//! The chain of addresses that proxies write down, read from the right.
//!
//! Each proxy adds the address of whoever spoke to it at the end. So the last one is what a trusted
//! proxy saw, and as long as that is a trusted proxy again, the one before is, too. What stands to
//! the left of the first stranger is whatever the stranger wrote, and is never looked at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::http::HeaderMap;
use ::http::header::FORWARDED;

use super::ForwardedHeader;
use super::address::{TrustedProxies, canonical};
use super::key::IdentityError;

/// The most proxies between a client and this service.
pub const HOPS_MAX: usize = 32;

/// The longest element of an `X-Forwarded-For`.
pub const ELEMENT_BYTES_MAX: usize = 128;

/// The longest line of a `Forwarded`. Because of its quotes it has to be read from the left.
pub const FORWARDED_BYTES_MAX: usize = 8_192;

/// The address of whoever spoke to the first of our proxies, where the last of them is `peer`.
pub(super) fn client(
    peer: IpAddr,
    headers: &HeaderMap,
    forwarded: ForwardedHeader,
    trusted: &TrustedProxies,
) -> Result<IpAddr, IdentityError> {
    let mut walk = ChainWalk {
        trusted,
        last: peer,
        hops: 0,
    };
    match forwarded {
        ForwardedHeader::Ignored => {}
        ForwardedHeader::XForwardedFor => {
            // Lines of one header are one list, in order.
            for line in headers.get_all("x-forwarded-for").iter().rev() {
                if walk.x_forwarded_for(line.as_bytes())? {
                    break;
                }
            }
        }
        ForwardedHeader::Rfc7239 => {
            for line in headers.get_all(FORWARDED).iter().rev() {
                if walk.rfc7239(line.as_bytes())? {
                    break;
                }
            }
        }
    }
    Ok(walk.last)
}

struct ChainWalk<'a> {
    trusted: &'a TrustedProxies,
    last: IpAddr,
    hops: usize,
}

impl ChainWalk<'_> {
    /// One step to the left; whether the walk ends there.
    fn step(&mut self, node: &[u8]) -> Result<bool, IdentityError> {
        self.hops += 1;
        if self.hops > HOPS_MAX {
            return Err(IdentityError::ChainTooLong);
        }
        self.last = canonical(address(node)?);
        Ok(!self.trusted.contains(self.last))
    }

    fn x_forwarded_for(&mut self, mut line: &[u8]) -> Result<bool, IdentityError> {
        loop {
            // A megabyte that somebody sent is not searched for a comma.
            let tail = &line[line.len().saturating_sub(ELEMENT_BYTES_MAX)..];
            let comma = tail.iter().rposition(|byte| *byte == b',');
            if comma.is_none() && tail.len() < line.len() {
                return Err(IdentityError::ChainTooLong);
            }
            let element = &tail[comma.map_or(0, |comma| comma + 1)..];
            if self.step(element.trim_ascii())? {
                return Ok(true);
            }
            if comma.is_none() {
                return Ok(false);
            }
            line = &line[..line.len() - element.len() - 1];
        }
    }

    fn rfc7239(&mut self, line: &[u8]) -> Result<bool, IdentityError> {
        if line.len() > FORWARDED_BYTES_MAX {
            return Err(IdentityError::ChainTooLong);
        }
        // The whole line must be right: a quote that a client left open could otherwise swallow
        // what a proxy wrote after it.
        let nodes = elements(line).ok_or(IdentityError::Malformed)?;
        for node in nodes.iter().rev() {
            let node = node.as_deref().ok_or(IdentityError::Hidden)?;
            if self.step(node)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The `for` of each element, in order; nothing for an element without one. Nothing at all, if the
/// line breaks RFC 7239 anywhere.
fn elements(line: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let mut reader = Reader { rest: line };
    let mut elements = Vec::new();
    loop {
        let mut node = None;
        loop {
            reader.skip_space();
            let name = reader.token()?;
            reader.expect(b'=')?;
            let value = reader.value()?;
            if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
                return None;
            }
            reader.skip_space();
            match reader.next() {
                Some(b';') => {}
                Some(b',') => break,
                None => {
                    elements.push(node);
                    return Some(elements);
                }
                Some(_) => return None,
            }
        }
        elements.push(node);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn token(&mut self) -> Option<Vec<u8>> {
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let length = self.rest.iter().take_while(|byte| is_token(byte)).count();
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        (!token.is_empty()).then(|| token.to_vec())
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        if self.rest.first() != Some(&b'"') {
            return self.unquoted();
        }
        self.rest = &self.rest[1..];
        let mut text = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => text.push(self.next()?),
                byte => text.push(byte),
            }
        }
    }

    /// A token. Addresses with a port have to be quoted, but proxies forget it, and a colon or a
    /// bracket can mean nothing else here.
    fn unquoted(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.rest.first() {
                Some(byte @ (b':' | b'[' | b']')) => {
                    text.push(*byte);
                    self.rest = &self.rest[1..];
                }
                _ => match self.token() {
                    Some(token) => text.extend(token),
                    None => return (!text.is_empty()).then_some(text),
                },
            }
        }
    }
}

/// The address that a proxy names: bare, in brackets, with or without a port.
fn address(node: &[u8]) -> Result<IpAddr, IdentityError> {
    let text = str::from_utf8(node).map_err(|_| IdentityError::Malformed)?;
    if text.eq_ignore_ascii_case("unknown") || text.starts_with('_') {
        return Err(IdentityError::Hidden);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address);
    }
    // RFC 7239 lets a proxy hide the port, too.
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(IdentityError::Malformed)?;
        let host = host.parse::<Ipv6Addr>().map_err(|_| IdentityError::Malformed)?;
        (IpAddr::V6(host), port)
    } else {
        let colon = text.find(':').unwrap_or(text.len());
        let (host, port) = text.split_at(colon);
        let host = host.parse::<Ipv4Addr>().map_err(|_| IdentityError::Malformed)?;
        (IpAddr::V4(host), port)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(host),
        Some(port) if is_port(port) => Ok(host),
        _ => Err(IdentityError::Malformed),
    }
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(is_name)
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
