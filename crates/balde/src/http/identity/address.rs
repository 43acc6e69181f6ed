//! Addresses and networks: what counts as the same host.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// The most networks of trusted proxies.
pub const TRUSTED_MAX: usize = 1_024;

/// The networks whose hosts are trusted proxies.
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

    /// Whether a host, as [`canonical`] gives it, is a trusted proxy.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// An IPv4 address in IPv6 clothes is the IPv4 address: a dual-stack socket shows it so, and a host
/// must not have two buckets.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The network of `bits` leading bits that the address is in.
pub(super) fn network_of(address: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX
        .checked_shl(128 - u32::from(bits.min(128)))
        .unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

fn network(text: &str) -> Result<IpNet, TrustedProxyError> {
    let bad = || TrustedProxyError::Invalid {
        text: text.chars().take(64).collect(),
    };
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(canonical(address)),
        Err(_) => text.parse().map_err(|_| bad())?,
    };
    let network = match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len() - 96)
                .map_err(|_| bad())?
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

/// Why a network of trusted proxies was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustedProxyError {
    /// It is no address and no network.
    Invalid {
        /// What was given, cut short.
        text: String,
    },
    /// It has everybody in it, so every client could name its own address.
    AnyAddress,
    /// There are more than [`TRUSTED_MAX`].
    TooMany,
}

impl fmt::Display for TrustedProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { text } => write!(
                f,
                "`{}` is no address and no network; write 10.1.2.3, 10.0.0.0/8 or 2001:db8::/32",
                text.escape_debug()
            ),
            Self::AnyAddress => f.write_str(
                "this trusts everybody, so every client could name its own address; \
                 list the proxies' networks",
            ),
            Self::TooMany => write!(f, "there are more than {TRUSTED_MAX} trusted networks"),
        }
    }
}

impl std::error::Error for TrustedProxyError {}

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
    fn a_network_contains_its_hosts_however_they_are_written() {
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
    fn what_is_no_network_or_everybody_is_refused() {
        let mut none = TrustedProxies::default();
        for text in [
            "",
            "10.0.0.0/33",
            "proxy.example",
            "10.0.0/8",
            "fe80::1%eth0",
        ] {
            assert!(
                matches!(none.add(text), Err(TrustedProxyError::Invalid { .. })),
                "{text}"
            );
        }
        for text in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
            assert_eq!(none.add(text), Err(TrustedProxyError::AnyAddress), "{text}");
        }
    }

    #[test]
    fn there_are_only_so_many_networks() {
        let mut many = TrustedProxies::default();
        for number in 0..TRUSTED_MAX {
            many.add(&format!("10.{}.{}.0/24", number / 256, number % 256))
                .unwrap();
        }
        assert_eq!(many.add("10.0.0.0/24"), Ok(()), "known already");
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
                network_of(address, bits),
                expected.parse::<Ipv6Addr>().unwrap()
            );
        }
    }
}
