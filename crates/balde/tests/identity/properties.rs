//! Client identity for arbitrary headers.

use std::net::IpAddr;

use balde::http::ForwardedHeader;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{XFF, from, identity, map, text};

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
    fn no_header_changes_the_key_of_an_untrusted_peer(
        octets in any::<[u8; 16]>(),
        headers in prop::collection::vec(any_header(), 0..6),
    ) {
        // Outside fd00::/8, and not IPv4-mapped.
        let mut octets = octets;
        octets[0] = 0x20;
        let peer = IpAddr::from(octets).to_string();
        for forwarded in [ForwardedHeader::XForwardedFor, ForwardedHeader::Rfc7239, ForwardedHeader::Ignored] {
            let identity = identity()
                .forwarded_header(forwarded)
                .api_key_header(HeaderName::from_static("x-api-key"))
                .user_id_header(HeaderName::from_static("x-user-id"));
            let without_headers = identity.key(&HeaderMap::new(), &from(&peer));
            prop_assert!(without_headers.is_ok());
            let with_headers = identity.key(&headers.iter().cloned().collect(), &from(&peer));
            prop_assert_eq!(with_headers, without_headers);
        }
    }

    #[test]
    fn nothing_left_of_the_client_changes_the_key(
        octets in any::<[u8; 3]>(),
        forged in "[ -+\\--~]{0,40}(, ?[0-9a-f:.]{0,20}){0,4}",
        proxies in 0..4_usize,
    ) {
        let client = format!("203.{}.{}.{}", octets[0], octets[1], octets[2]);
        let chain = format!("{client}{}", ", 10.1.1.1".repeat(proxies));
        let honest = identity().key(&map(&[(XFF, &chain)]), &from("10.0.0.1"));
        prop_assert_eq!(text(honest.clone()).unwrap(), format!("ip:{client}"));
        let joined = format!("{forged}, {chain}");
        let with_forged = identity().key(&map(&[(XFF, &joined)]), &from("10.0.0.1"));
        prop_assert_eq!(&with_forged, &honest);
        let lines = identity().key(&map(&[(XFF, &forged), (XFF, &chain)]), &from("10.0.0.1"));
        prop_assert_eq!(&lines, &honest);
    }
}
