//! Hosts with ports, in one spelling.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest name, as in the domain name system.
const NAME_BYTES_MAX: usize = 253;

/// A host and port in lower case, without a dot at the end, and without the default port; `None` if it
/// is not valid.
///
/// This is stricter than RFC 3986: a name has letters, digits and `-._~`. Nobody registers names with
/// other characters, and `a,b` or `a;b` would mean something else in header fields. A name that ends
/// in a number is an IPv4 address or invalid, as in the URL standard.
pub(crate) fn canonical(text: &str, default_port: u16) -> Option<Cow<'_, str>> {
    if is_canonical(text, default_port) {
        return Some(Cow::Borrowed(text));
    }
    let (name, port) = if text.starts_with('[') {
        let end = text.find(']')?;
        let (name, after) = text.split_at(end + 1);
        match after {
            "" => (name, None),
            _ => (name, Some(after.strip_prefix(':')?)),
        }
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) => Some(parsed_port(digits)?),
    };
    let port = port.filter(|port| *port != default_port);
    let canonical = canonical_name(name)?;
    Some(match port {
        None => canonical,
        Some(port) => Cow::Owned(format!("{canonical}:{port}")),
    })
}

/// Whether a host is written as it should be, as nearly all are: read once, and nothing is allocated. A
/// host for which this is false may be canonical all the same.
fn is_canonical(text: &str, default_port: u16) -> bool {
    let bytes = text.as_bytes();
    let (mut last_label, mut name_end) = (0, bytes.len());
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {}
            b'.' if index > last_label => last_label = index + 1,
            b':' => {
                name_end = index;
                break;
            }
            _ => return false,
        }
    }
    if last_label >= name_end || name_end > NAME_BYTES_MAX {
        return false;
    }
    let (name, port) = text.split_at(name_end);
    if bytes[last_label].is_ascii_digit() && name.parse::<Ipv4Addr>().is_err() {
        return false;
    }
    match port.strip_prefix(':') {
        None => true,
        Some(digits) => {
            !digits.starts_with('0') && parsed_port(digits).is_some_and(|port| port != default_port)
        }
    }
}

/// A host without its port.
pub(crate) fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn parsed_port(digits: &str) -> Option<u16> {
    // `parse` also accepts a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| is_number);
    port.filter(|port| *port != 0)
}

fn canonical_name(name: &str) -> Option<Cow<'_, str>> {
    if let Some(address) = name.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(Cow::Owned(format!("[{address}]")));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    if name.len() > NAME_BYTES_MAX
        || !name.bytes().all(is_allowed)
        || name.split('.').any(str::is_empty)
    {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.starts_with("0x")
        || last.starts_with("0X");
    if is_number && name.parse::<Ipv4Addr>().is_err() {
        return None;
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(Cow::Owned(name.to_ascii_lowercase()));
    }
    Some(Cow::Borrowed(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (text, expected) in [
            ("shop.example", "shop.example"),
            ("Shop.EXAMPLE", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example:80", "shop.example"),
            ("shop.example:080", "shop.example"),
            ("shop.example:", "shop.example"),
            ("shop.example.:8443", "shop.example:8443"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]", "[::1]"),
            ("[0:0::0:1]:80", "[::1]"),
            ("[2001:DB8::1]:81", "[2001:db8::1]:81"),
            ("a_b-c~d", "a_b-c~d"),
        ] {
            assert_eq!(canonical(text, 80).as_deref(), Some(expected), "{text}");
            let again = canonical(expected, 80).unwrap();
            assert_eq!(again, expected);
            let is_borrowed = matches!(again, Cow::Borrowed(_));
            assert_eq!(is_borrowed, !text.starts_with('['), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            ".",
            ":80",
            "a b",
            "a,b",
            "a;b",
            "a, for=6.6.6.6",
            "user@shop.example",
            "a..b",
            ".a",
            "a..",
            "shop.example:0",
            "shop.example:65536",
            "shop.example:+80",
            "shop.example:8a",
            "shop.example:80:80",
            "::1",
            "[::1",
            "[::1]80",
            "[::g]",
            "[v1.x]",
            "[fe80::1%25eth0]",
            "sh%6Fp.example",
            "shop.example/x",
            "shop.example?x",
            "a#b",
            "\"a\"",
            "a\\b",
            "127.1",
            "0x7f.1",
            "2130706433",
            "1.2.3.256",
            "01.2.3.4",
            "shöp",
        ] {
            assert_eq!(canonical(text, 80), None, "{text}");
        }
        assert_eq!(canonical(&"a".repeat(254), 80), None);
    }

    #[test]
    fn the_name_is_what_is_before_the_port() {
        assert_eq!(name_of("shop.example:8443"), "shop.example");
        assert_eq!(name_of("[::1]:80"), "[::1]");
        assert_eq!(name_of("[::1]"), "[::1]");
        assert_eq!(name_of("shop.example"), "shop.example");
    }
}
