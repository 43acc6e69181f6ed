//! IP addresses and networks: canonical addresses and trusted proxies.

use std::net::{IpAddr, Ipv6Addr};

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
