//! The chains of addresses that trusted proxies send.

use balde::http::{ForwardedHeader, Identity, IdentityError};

use super::{F, XFF, assert_keys, from, identity, map, text};

/// Checks the key for each value of a header that a trusted proxy sends, line by line.
fn assert_chain_keys(
    identity: &Identity,
    header: &str,
    table: &[(&str, Result<&str, IdentityError>)],
) {
    for (value, expected) in table {
        let lines: Vec<_> = value.split('\n').map(|line| (header, line)).collect();
        let found = text(identity.key(&map(&lines), &from("10.0.0.1")));
        assert_eq!(found.as_deref(), expected.as_deref(), "{value:.80}");
    }
}

const CLIENT: Result<&str, IdentityError> = Ok("ip:203.0.113.7");

#[test]
fn behind_trusted_proxies_the_key_is_the_right_most_untrusted_address() {
    assert_chain_keys(
        &identity(),
        XFF,
        &[
            // One proxy, two, three.
            ("203.0.113.7", CLIENT),
            ("203.0.113.7, 10.0.0.2", CLIENT),
            ("203.0.113.7, 192.168.7.7, 10.0.0.2", CLIENT),
            // What the client wrote itself is further left.
            ("6.6.6.6, 203.0.113.7", CLIENT),
            ("10.0.0.9, 203.0.113.7, 10.0.0.2", CLIENT),
            ("unknown, 203.0.113.7", CLIENT),
            ("\"<garbage>\", 203.0.113.7", CLIENT),
            (",,, ,203.0.113.7", CLIENT),
            // Lines are one list, in order.
            ("6.6.6.6\n203.0.113.7", CLIENT),
            ("203.0.113.7\n10.0.0.2", CLIENT),
            // Space, ports, brackets.
            (" \t203.0.113.7 \t,\t10.0.0.2 ", CLIENT),
            ("203.0.113.7,10.0.0.2", CLIENT),
            ("203.0.113.7:51234", CLIENT),
            ("::ffff:203.0.113.7", CLIENT),
            ("[::ffff:203.0.113.7]:80", CLIENT),
            ("2001:db8:1:2::9", Ok("ip:2001:db8:1:2::/64")),
            ("[2001:db8:1:2::9]", Ok("ip:2001:db8:1:2::/64")),
            ("[2001:db8:1:2::9]:443", Ok("ip:2001:db8:1:2::/64")),
            // Only proxies: the left-most one is the client.
            ("10.0.0.3, 10.0.0.2", Ok("ip:10.0.0.3")),
        ],
    );
    assert_keys(
        &identity(),
        &[
            ("10.0.0.1", &[], Ok("ip:10.0.0.1")),
            (
                "fd00::1",
                &[(XFF, "203.0.113.7, fd00::2, [fd00::3]:80")],
                CLIENT,
            ),
            (
                "::ffff:10.0.0.1",
                &[(XFF, "203.0.113.7, ::ffff:10.0.0.2")],
                CLIENT,
            ),
            ("10.0.0.1", &[("x-FORWARDED-for", "203.0.113.7")], CLIENT),
            // The other header is ignored.
            (
                "10.0.0.1",
                &[(XFF, "203.0.113.7"), (F, "for=6.6.6.6")],
                CLIENT,
            ),
            ("10.0.0.1", &[(F, "for=6.6.6.6")], Ok("ip:10.0.0.1")),
        ],
    );
}

#[test]
fn an_unusable_address_is_never_skipped_in_favour_of_the_next_to_the_left() {
    assert_chain_keys(
        &identity(),
        XFF,
        &[
            ("6.6.6.6, unknown", Err(IdentityError::Hidden)),
            ("6.6.6.6, UNKNOWN, 10.0.0.2", Err(IdentityError::Hidden)),
            ("6.6.6.6, _hidden", Err(IdentityError::Hidden)),
            ("6.6.6.6, 0.0.0.0", Err(IdentityError::Hidden)),
            ("6.6.6.6, ::", Err(IdentityError::Hidden)),
            ("6.6.6.6\nunknown", Err(IdentityError::Hidden)),
            ("6.6.6.6, ", Err(IdentityError::Malformed)),
            ("6.6.6.6,,10.0.0.2", Err(IdentityError::Malformed)),
            ("", Err(IdentityError::Malformed)),
            ("6.6.6.6, example.com", Err(IdentityError::Malformed)),
            ("6.6.6.6, 203.0.113.7:99999", Err(IdentityError::Malformed)),
            ("6.6.6.6, 203.0.113.7:", Err(IdentityError::Malformed)),
            ("6.6.6.6, 203.0.113.7:+80", Err(IdentityError::Malformed)),
            ("6.6.6.6, 203.0.113.007", Err(IdentityError::Malformed)),
            ("6.6.6.6, 256.1.1.1", Err(IdentityError::Malformed)),
            ("6.6.6.6, [203.0.113.7]", Err(IdentityError::Malformed)),
            ("6.6.6.6, [2001:db8::1", Err(IdentityError::Malformed)),
            ("6.6.6.6, [2001:db8::1]x", Err(IdentityError::Malformed)),
            ("6.6.6.6, fe80::1%eth0", Err(IdentityError::Malformed)),
            ("6.6.6.6, \u{fc}", Err(IdentityError::Malformed)),
        ],
    );
}

#[test]
fn the_length_of_a_chain_is_bounded() {
    let hops = |n: usize| format!("203.0.113.7{}", ", 10.0.0.1".repeat(n));
    let endless = "x".repeat(1 << 20);
    assert_chain_keys(
        &identity(),
        XFF,
        &[
            (&hops(31), CLIENT),
            (&hops(32), Err(IdentityError::ChainTooLong)),
            (
                &format!("{}203.0.113.7", "7.7.7.7, ".repeat(100_000)),
                CLIENT,
            ),
            (&format!("{endless}, 203.0.113.7"), CLIENT),
            (&endless, Err(IdentityError::ChainTooLong)),
        ],
    );
    let wide = format!("for=203.0.113.7;by={endless}");
    let standard = identity().forwarded_header(ForwardedHeader::Rfc7239);
    assert_chain_keys(&standard, F, &[(&wide, Err(IdentityError::ChainTooLong))]);
}

#[test]
fn the_forwarded_header_gives_the_same_keys() {
    let standard = identity().forwarded_header(ForwardedHeader::Rfc7239);
    let network = Ok("ip:2001:db8:cafe::/64");
    assert_chain_keys(
        &standard,
        F,
        &[
            ("for=203.0.113.7", CLIENT),
            ("For=\"203.0.113.7\"", CLIENT),
            ("for=\"203.0.113.7:47011\"", CLIENT),
            ("for=203.0.113.7:47011", CLIENT),
            ("for=\"203.0.113.7:_port\"", CLIENT),
            ("for=\"\\203.0.113.7\"", CLIENT),
            ("for=203.0.113.7;proto=http;by=10.0.0.1", CLIENT),
            ("proto=http; for=203.0.113.7 ;host=\"a, b\"", CLIENT),
            ("for=6.6.6.6, for=203.0.113.7, for=10.0.0.2", CLIENT),
            ("for=6.6.6.6\nfor=203.0.113.7\nfor=10.0.0.2", CLIENT),
            ("for=\"_gazonk, for=6.6.6.6\", for=203.0.113.7", CLIENT),
            ("for=unknown, for=203.0.113.7", CLIENT),
            ("for=\"\nfor=203.0.113.7", CLIENT),
            ("for=\"[2001:db8:cafe::17]:4711\"", network),
            ("for=\"[2001:db8:cafe::17]\"", network),
            ("for=6.6.6.6, for=unknown", Err(IdentityError::Hidden)),
            ("for=6.6.6.6, for=\"_hidden\"", Err(IdentityError::Hidden)),
            ("for=6.6.6.6, proto=http", Err(IdentityError::Hidden)),
            ("for=6.6.6.6, for=", Err(IdentityError::Malformed)),
            ("for=6.6.6.6, for=\"\"", Err(IdentityError::Malformed)),
            ("for=6.6.6.6;for=7.7.7.7", Err(IdentityError::Malformed)),
            ("for=6.6.6.6,, for=10.0.0.2", Err(IdentityError::Malformed)),
            ("for=6.6.6.6, 203.0.113.7", Err(IdentityError::Malformed)),
            ("", Err(IdentityError::Malformed)),
            // A quote that a client left open hides nothing.
            (
                "for=\"6.6.6.6, for=203.0.113.7",
                Err(IdentityError::Malformed),
            ),
            (
                "for=\"x, for=\"[2001:db8::1]\"",
                Err(IdentityError::Malformed),
            ),
            ("for=\"x\\", Err(IdentityError::Malformed)),
        ],
    );
    assert_keys(
        &standard,
        &[
            ("10.0.0.1", &[], Ok("ip:10.0.0.1")),
            ("10.0.0.1", &[(XFF, "6.6.6.6")], Ok("ip:10.0.0.1")),
            ("203.0.113.7", &[(F, "for=6.6.6.6")], CLIENT),
        ],
    );
}
