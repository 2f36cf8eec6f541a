//! Networks in the usual notation: `10.0.0.0/8`, `fd00::/8`, or a single address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network: write 10.0.0.0/8, fd00::/8 or an address")]
pub struct BadNetwork(String);

impl Network {
    /// Whether the address, as it is, lies in the network. No v4 address lies in a v6 network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(mine), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                mine.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(mine), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                mine.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| bad())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), |prefix| prefix.trim().parse()).map_err(|_| bad())?;
        if prefix > longest { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_inside_or_not() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
            ("::/0", "1.2.3.4", false),
            ("::1", "::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{address} in {network}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "example.com"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
