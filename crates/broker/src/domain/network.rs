//! Networks on the command line: `10.0.0.0/8`, `fd00::/8`, or a single address.

use std::net::IpAddr;

use ipnet::IpNet;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network; use 10.0.0.0/8, fd00::/8 or an address")]
pub struct BadNetwork(String);

/// Parses a network or a single address.
pub fn parse_network(text: &str) -> Result<IpNet, BadNetwork> {
    let trimmed = text.trim();
    let single = trimmed.parse::<IpAddr>().map(IpNet::from);
    single.or_else(|_| trimmed.parse()).map_err(|_| BadNetwork(text.to_owned()))
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
            let network = parse_network(network).unwrap();
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(network.contains(&address), inside, "{address} in {network}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "example.com"] {
            assert!(parse_network(bad).is_err(), "{bad}");
        }
    }
}
