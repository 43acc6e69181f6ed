//! IP addresses and networks: canonical addresses and trusted proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// The maximum number of trusted networks.
const TRUSTED_MAX: usize = 1_024;

/// The networks of the trusted proxies.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    pub(super) fn add(&mut self, text: &str) -> Result<(), TrustedProxyError> {
        let network = network(text.trim())?;
        if self.0.contains(&network) {
            return Ok(());
        }
        if self.0.len() == TRUSTED_MAX {
            return Err(TrustedProxyError::TooMany);
        }
        self.0.push(network);
        Ok(())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the address, which must be [`canonical`], belongs to a trusted proxy.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address. Dual-stack sockets report IPv4 peers in
/// the mapped form, and a host must not have two buckets.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The IPv4 address that an IPv6 address stands for, by which its host is counted: behind NAT64's
/// well-known prefix `64:ff9b::/96` (RFC 6052), or IPv4-compatible (`::a.b.c.d`, deprecated by RFC
/// 4291). All such addresses share a /64, and a host must not have two buckets.
///
/// Trust does not follow: a translated address never makes a trusted proxy of its sender, because
/// RFC 6052 forbids the prefix for private addresses such as those of proxies.
pub(super) fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    let [a, b, c, d, e, f, high, low] = address.segments();
    let v4 = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        NAT64 => Some(v4),
        // `::` and `::1` are addresses of their own, and no host has an address in 0.0.0.0/8.
        [0, 0, 0, 0, 0, 0] if v4.octets()[0] != 0 => Some(v4),
        _ => None,
    }
}

/// The address with all but its `bits` leading bits cleared.
pub(super) fn prefix_of(address: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX
        .checked_shl(128 - u32::from(bits.min(128)))
        .unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

fn network(text: &str) -> Result<IpNet, TrustedProxyError> {
    let invalid = || TrustedProxyError::Invalid {
        text: text.chars().take(64).collect(),
    };
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(canonical(address)),
        Err(_) => text.parse().map_err(|_| invalid())?,
    };
    let network = match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len() - 96)
                .map_err(|_| invalid())?
                .into(),
            None => network,
        },
        _ => network,
    };
    if network.prefix_len() == 0 {
        return Err(TrustedProxyError::AnyAddress);
    }
    Ok(network.trunc())
}

/// An invalid list of trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustedProxyError {
    /// The text is neither an address nor a network.
    #[error(
        "`{}` is neither an address nor a network; write 10.1.2.3, 10.0.0.0/8 or 2001:db8::/32",
        text.escape_debug()
    )]
    Invalid {
        /// The text, truncated to 64 characters.
        text: String,
    },
    /// The network contains all addresses, so any client could choose its own address.
    #[error(
        "this trusts all addresses, so any client could choose its own address; \
         list the networks of the proxies"
    )]
    AnyAddress,
    /// There are more than 1,024 networks.
    #[error("there are more than {TRUSTED_MAX} trusted networks; combine them into larger ones")]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(networks: &[&str]) -> TrustedProxies {
        let mut trusted = TrustedProxies::default();
        for network in networks {
            trusted.add(network).unwrap();
        }
        trusted
    }

    #[test]
    fn a_network_contains_its_hosts_in_any_notation() {
        for (network, host, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.1.2.3/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            (" fd00::/8 ", "fd12::1", true),
        ] {
            let host = canonical(host.parse().unwrap());
            assert_eq!(
                trusted(&[network]).contains(host),
                is_in,
                "{network} {host}"
            );
        }
    }

    #[test]
    fn invalid_networks_and_all_addresses_are_rejected() {
        let mut trusted = TrustedProxies::default();
        for text in [
            "",
            "10.0.0.0/33",
            "proxy.example",
            "10.0.0/8",
            "fe80::1%eth0",
        ] {
            assert!(
                matches!(trusted.add(text), Err(TrustedProxyError::Invalid { .. })),
                "{text}"
            );
        }
        for text in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
            assert_eq!(
                trusted.add(text),
                Err(TrustedProxyError::AnyAddress),
                "{text}"
            );
        }
    }

    #[test]
    fn the_number_of_networks_is_bounded() {
        let mut many = TrustedProxies::default();
        for number in 0..TRUSTED_MAX {
            many.add(&format!("10.{}.{}.0/24", number / 256, number % 256))
                .unwrap();
        }
        assert_eq!(many.add("10.0.0.0/24"), Ok(()), "a duplicate is not added");
        assert_eq!(many.add("192.0.2.0/24"), Err(TrustedProxyError::TooMany));
    }

    #[test]
    fn an_embedded_ipv4_address_is_found_in_the_two_forms_that_have_one() {
        for (address, embedded) in [
            ("64:ff9b::203.0.113.7", Some("203.0.113.7")),
            ("64:ff9b::", Some("0.0.0.0")),
            ("::203.0.113.7", Some("203.0.113.7")),
            ("::", None),
            ("::1", None),
            ("::0.1.2.3", None),
            // The prefix for local use (RFC 8215) has no fixed place for the address.
            ("64:ff9b:1::203.0.113.7", None),
            ("64:ff9b:0:1::203.0.113.7", None),
            ("2001:db8::203.0.113.7", None),
            ("2002:cb00:7107::1", None),
        ] {
            let found = embedded_v4(address.parse().unwrap());
            let expected = embedded.map(|text| text.parse().unwrap());
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn a_prefix_keeps_leading_bits() {
        let address: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        for (bits, expected) in [
            (128, "2001:db8:1:2:3:4:5:6"),
            (64, "2001:db8:1:2::"),
            (56, "2001:db8:1::"),
            (1, "::"),
        ] {
            assert_eq!(
                prefix_of(address, bits),
                expected.parse::<Ipv6Addr>().unwrap()
            );
        }
    }
}
