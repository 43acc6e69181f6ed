//! Client identity: tables of requests with the key that each must give.

mod chains;
mod properties;

use std::net::{IpAddr, SocketAddr};

use balde::KEY_BYTES_MAX;
use balde::http::identity::KeyKind;
use balde::http::{ApiKey, ClientKey, Identity, IdentityError, PeerAddr, UserId};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

const PROXIES: [&str; 3] = ["10.0.0.0/8", "192.168.7.7", "fd00::/8"];

type Lines<'a> = &'a [(&'a str, &'a str)];

fn identity() -> Identity {
    Identity::new().trusted_proxies(PROXIES).unwrap()
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

fn text(key: Result<ClientKey, IdentityError>) -> Result<String, IdentityError> {
    key.map(|key| String::from_utf8_lossy(key.as_ref()).into_owned())
}

fn assert_keys(identity: &Identity, table: &[(&str, Lines<'_>, Result<&str, IdentityError>)]) {
    for (peer, lines, expected) in table {
        let found = text(identity.key(&map(lines), &from(peer)));
        assert_eq!(found.as_deref(), expected.as_deref(), "{peer} {lines:?}");
    }
}

const XFF: &str = "X-Forwarded-For";
const F: &str = "Forwarded";

#[test]
fn an_untrusted_peer_is_identified_by_its_address_whatever_it_sends() {
    let peer = Ok("ip:203.0.113.7");
    assert_keys(
        &identity()
            .api_key_header(HeaderName::from_static("x-api-key"))
            .user_id_header(HeaderName::from_static("x-user-id")),
        &[
            ("203.0.113.7", &[], peer),
            ("203.0.113.7", &[(XFF, "6.6.6.6")], peer),
            ("203.0.113.7", &[(XFF, "10.0.0.1")], peer),
            ("203.0.113.7", &[(XFF, "unknown")], peer),
            ("203.0.113.7", &[(XFF, "¡garbage!")], peer),
            ("203.0.113.7", &[("Forwarded", "for=6.6.6.6")], peer),
            ("203.0.113.7", &[("X-Real-IP", "6.6.6.6")], peer),
            ("203.0.113.7", &[("X-Api-Key", "stolen")], peer),
            ("203.0.113.7", &[("X-User-Id", "root")], peer),
            ("::ffff:203.0.113.7", &[(XFF, "6.6.6.6")], peer),
            ("2001:db8:1:2:3:4:5:6", &[], Ok("ip:2001:db8:1:2::/64")),
            ("2001:db8:1:2:ffff::1", &[], Ok("ip:2001:db8:1:2::/64")),
            ("2001:db8:1:3::1", &[], Ok("ip:2001:db8:1:3::/64")),
            ("::1", &[], Ok("ip:::/64")),
            ("", &[], Err(IdentityError::UnknownPeer)),
            ("", &[(XFF, "203.0.113.7")], Err(IdentityError::UnknownPeer)),
            ("0.0.0.0", &[], Err(IdentityError::Hidden)),
        ],
    );
}

#[test]
fn api_keys_take_precedence_over_user_ids_and_those_over_addresses() {
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
            // The proxy may have added its own to the client's: they cannot be distinguished.
            (
                "10.0.0.1",
                &[("X-Api-Key", "a"), ("X-Api-Key", "b")],
                Err(IdentityError::DuplicateHeader),
            ),
            (
                "10.0.0.1",
                &[("X-User-Id", "a"), ("X-User-Id", "a")],
                Err(IdentityError::DuplicateHeader),
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
    // Neither needs a peer, and an empty key is ignored.
    let mut extensions = Extensions::new();
    extensions.insert(ApiKey(String::new()));
    extensions.insert(UserId("bob".to_owned()));
    assert_eq!(
        text(identity.key(&none, &extensions)).as_deref(),
        Ok("user:bob")
    );
}

#[test]
fn ids_that_are_too_long_are_refused_and_long_ones_are_kept_whole() {
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
        Err(IdentityError::TooLong { bytes })
    );
    let mut extensions = from("203.0.113.7");
    extensions.insert(ApiKey("k".repeat(1 << 20)));
    let too_long = identity.key(&none, &extensions);
    assert_eq!(too_long, Err(IdentityError::TooLong { bytes: 1 << 20 }));
}

#[test]
fn keys_of_different_kinds_never_collide() {
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
fn the_peer_is_taken_from_a_custom_extension() {
    #[derive(Clone)]
    struct Mine(IpAddr);
    let identity = Identity::new().peer_from(|found| found.get::<Mine>().map(|mine| mine.0));
    let mut extensions = from("192.0.2.1");
    let none = HeaderMap::new();
    assert_eq!(
        identity.key(&none, &extensions),
        Err(IdentityError::UnknownPeer)
    );
    extensions.insert(Mine("::ffff:203.0.113.7".parse().unwrap()));
    let key = text(identity.key(&none, &extensions));
    assert_eq!(key.as_deref(), Ok("ip:203.0.113.7"));
}

#[cfg(feature = "axum")]
#[test]
fn the_peer_is_taken_from_axums_connect_info() {
    let peer: SocketAddr = "203.0.113.7:80".parse().unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(axum::extract::ConnectInfo(peer));
    let key = text(Identity::new().key(&HeaderMap::new(), &extensions));
    assert_eq!(key.as_deref(), Ok("ip:203.0.113.7"));
}

#[test]
fn ipv6_clients_are_identified_by_the_configured_prefix() {
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
fn debug_output_shows_no_identity() {
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

#[test]
fn an_ipv4_address_inside_an_ipv6_address_is_counted_as_the_ipv4_address() {
    let identity = Identity::new().trusted_proxies(["10.0.0.0/8"]).unwrap();
    let forwarded = map(&[(XFF, "6.6.6.6")]);
    for (peer, expected) in [
        ("::ffff:203.0.113.7", "ip:203.0.113.7"),
        ("64:ff9b::203.0.113.7", "ip:203.0.113.7"),
        ("64:ff9b::cb00:7107", "ip:203.0.113.7"),
        ("::203.0.113.7", "ip:203.0.113.7"),
        ("64:ff9b:1::203.0.113.7", "ip:64:ff9b:1::/64"),
        ("::1", "ip:::/64"),
        // Only the mapped form is the proxy itself. The others are counted, but not trusted.
        ("::ffff:10.0.0.1", "ip:6.6.6.6"),
        ("64:ff9b::10.0.0.1", "ip:10.0.0.1"),
        ("::10.0.0.1", "ip:10.0.0.1"),
    ] {
        let key = text(identity.key(&forwarded, &from(peer)));
        assert_eq!(key.as_deref(), Ok(expected), "{peer}");
    }
    let none = HeaderMap::new();
    let hidden = identity.key(&none, &from("64:ff9b::"));
    assert_eq!(hidden, Err(IdentityError::Hidden));
}

#[test]
fn the_network_of_an_ipv6_client_has_a_key_of_its_own() {
    let identity = Identity::new().trusted_proxies(["10.0.0.0/8"]).unwrap();
    let forwarded = map(&[(XFF, "2001:db8:1:2ab::5")]);
    for (peer, bits, expected) in [
        ("2001:db8:1:2ff::5", 48, Some("ip:2001:db8:1::/48")),
        ("2001:db8:1:2ff::5", 56, Some("ip:2001:db8:1:200::/56")),
        ("2001:db8:1:3ff::5", 56, Some("ip:2001:db8:1:300::/56")),
        ("10.0.0.1", 56, Some("ip:2001:db8:1:200::/56")),
        ("203.0.113.7", 48, None),
        ("::ffff:203.0.113.7", 48, None),
        ("64:ff9b::203.0.113.7", 48, None),
    ] {
        let key = identity.ipv6_network_key(&forwarded, &from(peer), bits);
        let key = key.unwrap().map(|key| text(Ok(key)).unwrap());
        assert_eq!(key.as_deref(), expected, "{peer}");
    }
    let mut known = from("2001:db8:1:2ff::5");
    known.insert(UserId("bob".to_owned()));
    let none = HeaderMap::new();
    assert_eq!(identity.ipv6_network_key(&none, &known, 48), Ok(None));
    assert_eq!(
        identity.ipv6_network_key(&none, &Extensions::new(), 48),
        Err(IdentityError::UnknownPeer)
    );
}
