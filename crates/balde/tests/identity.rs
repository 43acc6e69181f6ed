//! Who is asking, whatever they write: a table of requests with the key each must give.

use std::net::{IpAddr, SocketAddr};

use balde::KEY_BYTES_MAX;
use balde::http::identity::KeyKind;
use balde::http::{ApiKey, ClientKey, Forwarded, Identity, NoKey, PeerAddr, UserId};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

const PROXIES: [&str; 3] = ["10.0.0.0/8", "192.168.7.7", "fd00::/8"];

type Lines<'a> = &'a [(&'a str, &'a str)];

fn identity() -> Identity {
    Identity::new().trust(PROXIES).unwrap()
}

fn map(lines: Lines<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    headers
}

fn from(peer: &str) -> Extensions {
    let mut extensions = Extensions::new();
    if !peer.is_empty() {
        let ip: IpAddr = peer.parse().unwrap();
        extensions.insert(PeerAddr(SocketAddr::new(ip, 4_711)));
    }
    extensions
}

fn text(key: Result<ClientKey, NoKey>) -> Result<String, NoKey> {
    key.map(|key| String::from_utf8_lossy(key.as_ref()).into_owned())
}

fn assert_keys(identity: &Identity, table: &[(&str, Lines<'_>, Result<&str, NoKey>)]) {
    for (peer, lines, expected) in table {
        let found = text(identity.key(&map(lines), &from(peer)));
        assert_eq!(found.as_deref(), expected.as_deref(), "{peer} {lines:?}");
    }
}

const XFF: &str = "X-Forwarded-For";
const F: &str = "Forwarded";

#[test]
fn a_stranger_is_its_own_address_whatever_it_writes() {
    let itself = Ok("ip:203.0.113.7");
    assert_keys(
        &identity()
            .api_key_header(HeaderName::from_static("x-api-key"))
            .user_id_header(HeaderName::from_static("x-user-id")),
        &[
            ("203.0.113.7", &[], itself),
            ("203.0.113.7", &[(XFF, "6.6.6.6")], itself),
            ("203.0.113.7", &[(XFF, "10.0.0.1")], itself),
            ("203.0.113.7", &[(XFF, "unknown")], itself),
            ("203.0.113.7", &[(XFF, "¡garbage!")], itself),
            ("203.0.113.7", &[("Forwarded", "for=6.6.6.6")], itself),
            ("203.0.113.7", &[("X-Real-IP", "6.6.6.6")], itself),
            ("203.0.113.7", &[("X-Api-Key", "stolen")], itself),
            ("203.0.113.7", &[("X-User-Id", "root")], itself),
            ("::ffff:203.0.113.7", &[(XFF, "6.6.6.6")], itself),
            ("2001:db8:1:2:3:4:5:6", &[], Ok("ip:2001:db8:1:2::/64")),
            ("2001:db8:1:2:ffff::1", &[], Ok("ip:2001:db8:1:2::/64")),
            ("2001:db8:1:3::1", &[], Ok("ip:2001:db8:1:3::/64")),
            ("::1", &[], Ok("ip:::/64")),
            ("", &[], Err(NoKey::NoPeer)),
            ("", &[(XFF, "203.0.113.7")], Err(NoKey::NoPeer)),
            ("0.0.0.0", &[], Err(NoKey::Hidden)),
        ],
    );
}

/// What a trusted proxy says in one header, line by line.
fn assert_told(identity: &Identity, header: &str, table: &[(&str, Result<&str, NoKey>)]) {
    for (value, expected) in table {
        let lines: Vec<_> = value.split('\n').map(|line| (header, line)).collect();
        let found = text(identity.key(&map(&lines), &from("10.0.0.1")));
        assert_eq!(found.as_deref(), expected.as_deref(), "{value:.80}");
    }
}

const CLIENT: Result<&str, NoKey> = Ok("ip:203.0.113.7");

#[test]
fn behind_trusted_proxies_it_is_the_right_most_stranger() {
    assert_told(
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
            // Only proxies: one of them is asking.
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
            // The header that is not theirs.
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
fn where_a_proxy_names_nobody_it_is_never_the_next_address_to_the_left() {
    assert_told(
        &identity(),
        XFF,
        &[
            ("6.6.6.6, unknown", Err(NoKey::Hidden)),
            ("6.6.6.6, UNKNOWN, 10.0.0.2", Err(NoKey::Hidden)),
            ("6.6.6.6, _hidden", Err(NoKey::Hidden)),
            ("6.6.6.6, 0.0.0.0", Err(NoKey::Hidden)),
            ("6.6.6.6, ::", Err(NoKey::Hidden)),
            ("6.6.6.6\nunknown", Err(NoKey::Hidden)),
            ("6.6.6.6, ", Err(NoKey::Malformed)),
            ("6.6.6.6,,10.0.0.2", Err(NoKey::Malformed)),
            ("", Err(NoKey::Malformed)),
            ("6.6.6.6, example.com", Err(NoKey::Malformed)),
            ("6.6.6.6, 203.0.113.7:99999", Err(NoKey::Malformed)),
            ("6.6.6.6, 203.0.113.7:", Err(NoKey::Malformed)),
            ("6.6.6.6, 203.0.113.7:+80", Err(NoKey::Malformed)),
            ("6.6.6.6, 203.0.113.007", Err(NoKey::Malformed)),
            ("6.6.6.6, 256.1.1.1", Err(NoKey::Malformed)),
            ("6.6.6.6, [203.0.113.7]", Err(NoKey::Malformed)),
            ("6.6.6.6, [2001:db8::1", Err(NoKey::Malformed)),
            ("6.6.6.6, [2001:db8::1]x", Err(NoKey::Malformed)),
            ("6.6.6.6, fe80::1%eth0", Err(NoKey::Malformed)),
            ("6.6.6.6, \u{fc}", Err(NoKey::Malformed)),
        ],
    );
}

#[test]
fn long_chains_are_followed_only_so_far() {
    let hops = |n: usize| format!("203.0.113.7{}", ", 10.0.0.1".repeat(n));
    let endless = "x".repeat(1 << 20);
    assert_told(
        &identity(),
        XFF,
        &[
            (&hops(31), CLIENT),
            (&hops(32), Err(NoKey::ChainTooLong)),
            (
                &format!("{}203.0.113.7", "7.7.7.7, ".repeat(100_000)),
                CLIENT,
            ),
            (&format!("{endless}, 203.0.113.7"), CLIENT),
            (&endless, Err(NoKey::ChainTooLong)),
        ],
    );
    let wide = format!("for=203.0.113.7;by={endless}");
    let standard = identity().forwarded(Forwarded::Rfc7239);
    assert_told(&standard, F, &[(&wide, Err(NoKey::ChainTooLong))]);
}

#[test]
fn the_standard_header_says_the_same_in_its_own_words() {
    let standard = identity().forwarded(Forwarded::Rfc7239);
    let network = Ok("ip:2001:db8:cafe::/64");
    assert_told(
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
            ("for=6.6.6.6, for=unknown", Err(NoKey::Hidden)),
            ("for=6.6.6.6, for=\"_hidden\"", Err(NoKey::Hidden)),
            ("for=6.6.6.6, proto=http", Err(NoKey::Hidden)),
            ("for=6.6.6.6, for=", Err(NoKey::Malformed)),
            ("for=6.6.6.6, for=\"\"", Err(NoKey::Malformed)),
            ("for=6.6.6.6;for=7.7.7.7", Err(NoKey::Malformed)),
            ("for=6.6.6.6,, for=10.0.0.2", Err(NoKey::Malformed)),
            ("for=6.6.6.6, 203.0.113.7", Err(NoKey::Malformed)),
            ("", Err(NoKey::Malformed)),
            // A quote that a client left open swallows nothing.
            ("for=\"6.6.6.6, for=203.0.113.7", Err(NoKey::Malformed)),
            ("for=\"x, for=\"[2001:db8::1]\"", Err(NoKey::Malformed)),
            ("for=\"x\\", Err(NoKey::Malformed)),
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

#[test]
fn api_keys_go_before_user_ids_and_these_before_addresses() {
    let alice = "key:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    let identity = identity()
        .api_key_header(HeaderName::from_static("x-api-key"))
        .user_id_header(HeaderName::from_static("x-user-id"));
    assert_keys(
        &identity,
        &[
            (
                "10.0.0.1",
                &[("X-Api-Key", "alice"), ("X-User-Id", "bob")],
                Ok(alice),
            ),
            ("10.0.0.1", &[("x-api-key", " alice ")], Ok(alice)),
            (
                "10.0.0.1",
                &[("X-User-Id", "bob"), (XFF, "6.6.6.6")],
                Ok("user:bob"),
            ),
            (
                "10.0.0.1",
                &[("X-Api-Key", ""), (XFF, "203.0.113.7")],
                Ok("ip:203.0.113.7"),
            ),
            // The proxy has added its own to the client's: which is which?
            (
                "10.0.0.1",
                &[("X-Api-Key", "a"), ("X-Api-Key", "b")],
                Err(NoKey::Repeated),
            ),
            (
                "10.0.0.1",
                &[("X-User-Id", "a"), ("X-User-Id", "a")],
                Err(NoKey::Repeated),
            ),
        ],
    );

    let mut extensions = from("203.0.113.7");
    extensions.insert(UserId("bob".to_owned()));
    let none = HeaderMap::new();
    assert_eq!(
        text(identity.key(&none, &extensions)).as_deref(),
        Ok("user:bob")
    );
    extensions.insert(ApiKey("alice".to_owned()));
    let key = identity
        .key(&map(&[("X-Api-Key", "stolen")]), &extensions)
        .unwrap();
    assert_eq!(
        (key.kind(), key.as_ref()),
        (KeyKind::ApiKey, alice.as_bytes())
    );
    // They need no peer at all, and an empty one is none.
    let mut extensions = Extensions::new();
    extensions.insert(ApiKey(String::new()));
    extensions.insert(UserId("bob".to_owned()));
    assert_eq!(
        text(identity.key(&none, &extensions)).as_deref(),
        Ok("user:bob")
    );
}

#[test]
fn names_that_are_too_long_are_refused_and_long_ones_are_whole() {
    let identity = Identity::new();
    let none = HeaderMap::new();
    let with = |id: String| {
        let mut extensions = from("203.0.113.7");
        extensions.insert(UserId(id));
        identity.key(&none, &extensions)
    };
    for bytes in [1, 66, 67, 68, 1_000, KEY_BYTES_MAX - 5] {
        let key = with("x".repeat(bytes)).unwrap();
        assert_eq!(
            key.as_ref(),
            format!("user:{}", "x".repeat(bytes)).as_bytes()
        );
    }
    let bytes = KEY_BYTES_MAX + 1;
    assert_eq!(
        with("x".repeat(KEY_BYTES_MAX - 4)),
        Err(NoKey::TooLong { bytes })
    );
    let mut extensions = from("203.0.113.7");
    extensions.insert(ApiKey("k".repeat(1 << 20)));
    let too_long = identity.key(&none, &extensions);
    assert_eq!(too_long, Err(NoKey::TooLong { bytes: 1 << 20 }));
}

#[test]
fn kinds_never_meet() {
    let identity = Identity::new();
    let key = |extensions: Extensions| {
        let key = identity.key(&HeaderMap::new(), &extensions).unwrap();
        key.as_ref().to_vec()
    };
    let user = |id: &str| {
        let mut extensions = from("203.0.113.7");
        extensions.insert(UserId(id.to_owned()));
        key(extensions)
    };
    let mut api = from("203.0.113.7");
    api.insert(ApiKey("203.0.113.7".to_owned()));
    let keys = [
        key(from("203.0.113.7")),
        user("203.0.113.7"),
        user("ip:203.0.113.7"),
        key(api),
    ];
    for (index, one) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(one));
    }
}

#[test]
fn the_peer_is_where_the_server_put_it() {
    #[derive(Clone)]
    struct Mine(IpAddr);
    let identity = Identity::new().peer_from(|found| found.get::<Mine>().map(|mine| mine.0));
    let mut extensions = from("192.0.2.1");
    let none = HeaderMap::new();
    assert_eq!(identity.key(&none, &extensions), Err(NoKey::NoPeer));
    extensions.insert(Mine("::ffff:203.0.113.7".parse().unwrap()));
    let key = text(identity.key(&none, &extensions));
    assert_eq!(key.as_deref(), Ok("ip:203.0.113.7"));
}

#[cfg(feature = "axum")]
#[test]
fn axum_tells_the_peer_its_own_way() {
    let peer: SocketAddr = "203.0.113.7:80".parse().unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(axum::extract::ConnectInfo(peer));
    let key = text(Identity::new().key(&HeaderMap::new(), &extensions));
    assert_eq!(key.as_deref(), Ok("ip:203.0.113.7"));
}

#[test]
fn ipv6_callers_count_by_the_prefix_that_is_set() {
    for (bits, expected) in [
        (128, "ip:2001:db8:1:2:3:4:5:6/128"),
        (48, "ip:2001:db8:1::/48"),
    ] {
        let identity = Identity::new().ipv6_prefix(bits);
        let key = text(identity.key(&HeaderMap::new(), &from("2001:db8:1:2:3:4:5:6")));
        assert_eq!(key.as_deref(), Ok(expected));
    }
}

#[test]
fn nothing_that_names_somebody_is_printed() {
    let mut extensions = from("203.0.113.7");
    extensions.insert(ApiKey("hunter2".to_owned()));
    let key = Identity::new().key(&HeaderMap::new(), &extensions).unwrap();
    let address = Identity::new()
        .key(&HeaderMap::new(), &from("203.0.113.7"))
        .unwrap();
    let shown = format!(
        "{key:?} {address:?} {:?} {:?} {:?}",
        extensions.get::<ApiKey>(),
        extensions.get::<PeerAddr>(),
        UserId("hunter2".to_owned())
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("203"),
        "{shown}"
    );
}

fn any_header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let name = prop_oneof![
        Just("x-forwarded-for"),
        Just("forwarded"),
        Just("x-api-key"),
        Just("x-user-id"),
        Just("x-real-ip"),
        Just("via"),
    ];
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::from(octets).to_string()),
        any::<[u8; 16]>().prop_map(|octets| format!("[{}]:1", IpAddr::from(octets))),
        Just("10.0.0.1".to_owned()),
        Just("unknown".to_owned()),
    ];
    let list = prop::collection::vec(address, 0..5).prop_map(|all| all.join(", "));
    let value = prop_oneof![
        list,
        "(for=\"?[a-z0-9.:\\[\\]_]{0,20}\"?[,; ]?){0,4}",
        "[ -~]{0,60}"
    ];
    (name, value).prop_map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        (HeaderName::from_static(name), value)
    })
}

proptest! {
    #[test]
    fn no_header_whatsoever_changes_the_key_of_a_stranger(
        octets in any::<[u8; 16]>(),
        headers in prop::collection::vec(any_header(), 0..6),
    ) {
        // Outside fd00::/8, and not IPv4 in disguise.
        let mut octets = octets;
        octets[0] = 0x20;
        let peer = IpAddr::from(octets).to_string();
        for forwarded in [Forwarded::XForwardedFor, Forwarded::Rfc7239, Forwarded::Ignored] {
            let identity = identity()
                .forwarded(forwarded)
                .api_key_header(HeaderName::from_static("x-api-key"))
                .user_id_header(HeaderName::from_static("x-user-id"));
            let bare = identity.key(&HeaderMap::new(), &from(&peer));
            prop_assert!(bare.is_ok());
            let dressed = identity.key(&headers.iter().cloned().collect(), &from(&peer));
            prop_assert_eq!(dressed, bare);
        }
    }

    #[test]
    fn nothing_left_of_the_stranger_changes_the_key(
        octets in any::<[u8; 3]>(),
        forged in "[ -+\\--~]{0,40}(, ?[0-9a-f:.]{0,20}){0,4}",
        proxies in 0..4_usize,
    ) {
        let client = format!("203.{}.{}.{}", octets[0], octets[1], octets[2]);
        let chain = format!("{client}{}", ", 10.1.1.1".repeat(proxies));
        let honest = identity().key(&map(&[(XFF, &chain)]), &from("10.0.0.1"));
        prop_assert_eq!(text(honest.clone()).unwrap(), format!("ip:{client}"));
        let joined = format!("{forged}, {chain}");
        let lied = identity().key(&map(&[(XFF, &joined)]), &from("10.0.0.1"));
        prop_assert_eq!(&lied, &honest);
        let lines = identity().key(&map(&[(XFF, &forged), (XFF, &chain)]), &from("10.0.0.1"));
        prop_assert_eq!(&lines, &honest);
    }
}
