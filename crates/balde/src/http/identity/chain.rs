//! The chain of addresses in `X-Forwarded-For` or `Forwarded`, read from right to left.
//!
//! Each proxy appends the address of its own peer. The right-most address was therefore written by a
//! trusted proxy, and as long as an address is itself a trusted proxy, so was the one to its left.
//! Everything to the left of the first untrusted address may be forged and is not read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::http::HeaderMap;
use ::http::header::FORWARDED;

use super::address::{TrustedProxies, canonical};
use super::error::{ELEMENT_BYTES_MAX, FORWARDED_BYTES_MAX, HOPS_MAX, IdentityError};

/// The header in which trusted proxies list the addresses that a request came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, the header that most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as RFC 7239 defines it.
    Rfc7239,
    /// Neither. All requests through one proxy share a key, unless they have an API key or a user
    /// id.
    Ignored,
}

/// The address of the client that connected to the first trusted proxy; `peer` is the last proxy.
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
            // Several lines of one header form one list, in order.
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
    /// Reads one address to the left. Returns true if it is untrusted and the walk ends.
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
            // Searches for a comma in a bounded tail only: the line may be a megabyte long.
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
        // The whole line must be valid: otherwise a quote that a client left open could hide what a
        // proxy appended after it.
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

/// Returns true if a line of the header `Forwarded` is as RFC 7239 demands. Nothing should be appended
/// to a line that is not, because the rest of the line could hide it, for instance by a quote that was
/// left open.
pub fn is_forwarded(line: &[u8]) -> bool {
    line.len() <= FORWARDED_BYTES_MAX && elements(line).is_some()
}

/// The `for` parameter of each element, in order, or `None` for an element without one. Returns
/// `None` if the line violates RFC 7239 anywhere.
fn elements(line: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
    let mut reader = ForwardedReader { rest: line };
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

struct ForwardedReader<'a> {
    rest: &'a [u8],
}

impl ForwardedReader<'_> {
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

    /// A token that may also contain colons and brackets. RFC 7239 demands quotes around an address
    /// with a port, but some proxies omit them, and these characters have no other meaning here.
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

/// Parses an address with optional brackets and an optional port.
fn address(node: &[u8]) -> Result<IpAddr, IdentityError> {
    let text = str::from_utf8(node).map_err(|_| IdentityError::Malformed)?;
    if text.eq_ignore_ascii_case("unknown") || text.starts_with('_') {
        return Err(IdentityError::Hidden);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address);
    }
    // RFC 7239 also allows an obfuscated port, `_name`.
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(IdentityError::Malformed)?;
        let host = host
            .parse::<Ipv6Addr>()
            .map_err(|_| IdentityError::Malformed)?;
        (IpAddr::V6(host), port)
    } else {
        let colon = text.find(':').unwrap_or(text.len());
        let (host, port) = text.split_at(colon);
        let host = host
            .parse::<Ipv4Addr>()
            .map_err(|_| IdentityError::Malformed)?;
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
