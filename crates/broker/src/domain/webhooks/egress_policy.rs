//! Where messages may go. A project chooses the URL, and the broker runs in the operator's network: without a policy,
//! webhooks would allow server-side request forgery.
//!
//! The policy checks the URL when it is stored and before each attempt. When connecting, it checks every
//! address that the host name resolves to: if one is refused, all are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

/// The longest URL that is stored.
const MAX_URL: usize = 2048;
const PORTS: [u16; 2] = [443, 8443];

/// What the operator allows beyond public HTTPS.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Non-public networks that may be reached.
    pub networks: Vec<IpNet>,
    pub plain_http: bool,
    pub any_port: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the URL of a webhook must be like https://hooks.example.com/brokkr, with at most {MAX_URL} bytes"
    )]
    NotAnAddress,
    #[error("the URL must start with https://")]
    NotHttps,
    #[error("the URL contains a user name or password; receivers authenticate messages by their signature")]
    Credentials,
    #[error("port {0} is not allowed; webhooks go to 443 or 8443")]
    Port(u16),
    #[error("{0} is not a public address, and the operator of this broker does not allow it")]
    NotPublic(IpAddr),
    #[error("the host name does not resolve to an address")]
    Nowhere,
}

impl EgressPolicy {
    /// Checks a URL.
    pub fn url(&self, text: &str) -> Result<Url, Refusal> {
        if text.len() > MAX_URL {
            return Err(Refusal::NotAnAddress);
        }
        let url = Url::parse(text).map_err(|_| Refusal::NotAnAddress)?;
        match url.scheme() {
            "https" => {}
            "http" if self.plain_http => {}
            _ => return Err(Refusal::NotHttps),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Credentials);
        }
        let port = url.port_or_known_default().ok_or(Refusal::NotAnAddress)?;
        let usual = PORTS.contains(&port) || (port == 80 && url.scheme() == "http");
        if !usual && !self.any_port {
            return Err(Refusal::Port(port));
        }
        match url.host().ok_or(Refusal::NotAnAddress)? {
            Host::Domain("") => Err(Refusal::NotAnAddress),
            // A name is checked when it is resolved.
            Host::Domain(_) => Ok(()),
            Host::Ipv4(address) => self.address(address.into()),
            Host::Ipv6(address) => self.address(address.into()),
        }?;
        Ok(url)
    }

    /// Checks one address.
    pub fn address(&self, address: IpAddr) -> Result<(), Refusal> {
        let embedded = embedded(address);
        let allowed = |network: &IpNet| network.contains(&address) || network.contains(&embedded);
        let public = match embedded {
            IpAddr::V4(address) => is_public_v4(address),
            IpAddr::V6(address) => is_public_v6(address),
        };
        if public || self.networks.iter().any(allowed) { Ok(()) } else { Err(Refusal::NotPublic(address)) }
    }

    /// Checks all addresses of a name; there has to be at least one.
    pub fn addresses(&self, addresses: &[IpAddr]) -> Result<(), Refusal> {
        if addresses.is_empty() {
            return Err(Refusal::Nowhere);
        }
        addresses.iter().try_for_each(|address| self.address(*address))
    }
}

/// Returns the IPv4 address that an IPv6 address contains (IPv4-mapped, or NAT64 with the well-known prefix);
/// otherwise the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ => address,
    }
}

/// Returns false for special-purpose addresses, as IANA lists them.
fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]       // this network, private, loopback, multicast, reserved
            | [100, 64..=127, ..]            // carrier-grade NAT
            | [169, 254, ..]                 // link-local, including cloud metadata
            | [172, 16..=31, ..]             // private
            | [192, 0, 0 | 2, _]             // protocol assignments, documentation
            | [192, 88, 99, _]               // 6to4 relays
            | [192, 168, ..]                 // private
            | [198, 18 | 19, ..]             // benchmarks
            | [198, 51, 100, _]              // documentation
            | [203, 0, 113, _] // documentation
    )
}

/// Only 2000::/3 is assigned for public use; parts of it have other purposes.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Teredo, ORCHID, benchmarks and other protocol assignments; documentation; 6to4, which hides a v4 address.
        [0x2001, 0..=0x01ff | 0xdb8, ..] | [0x2002, ..] => false,
        [0x3fff, 0..=0x0fff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
#[path = "egress_policy/tests.rs"]
mod tests;
