//! Where a request comes from: the address of the peer, or what a proxy that is trusted says about it.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use brokkr_api::ErrorCode;
use http::{Extensions, HeaderMap, Method};

use crate::error::ApiError;

/// The address at the other end of the connection, put there by the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// What is known of a request besides its caller. Made by the frame.
#[derive(Clone, Debug)]
pub struct Origin {
    pub request_id: String,
    pub method: Method,
    /// The path as the table has it.
    pub route: String,
    pub path: String,
    pub address: Option<IpAddr>,
}

impl Origin {
    /// As the frame put it there.
    pub fn of(extensions: &Extensions) -> Result<Arc<Self>, ApiError> {
        let origin = extensions.get().cloned();
        origin.ok_or_else(|| ApiError::new(ErrorCode::BRK9001, "a request came around the frame"))
    }
}

/// A network: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an address or a network such as 10.0.0.0/8")]
pub struct BadNetwork(String);

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, bits: u8| {
            let shift = u32::from(bits - self.prefix);
            one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => same(u32::from(net).into(), u32::from(ip).into(), 32),
            (IpAddr::V6(net), IpAddr::V6(ip)) => same(net.into(), ip.into(), 128),
            _ => false,
        }
    }
}

/// The address that counts: the peer; or, behind trusted proxies, the last one in `X-Forwarded-For` that is not
/// such a proxy itself. What stands before it, anybody may have written.
#[must_use]
pub fn address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut address = peer.to_canonical();
    let lists = headers.get_all("x-forwarded-for").iter().rev().filter_map(|value| value.to_str().ok());
    for hop in lists.flat_map(|list| list.rsplit(',')) {
        if !is_trusted(address) {
            break;
        }
        let Ok(before) = hop.trim().parse::<IpAddr>() else { break };
        address = before.to_canonical();
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_about_its_own_peer() {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        let seen = |peer: &str, forwarded: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for list in forwarded {
                headers.append("x-forwarded-for", http::HeaderValue::from_static(list));
            }
            address(peer.parse().unwrap(), &headers, &trusted).to_string()
        };
        assert_eq!(seen("192.0.2.7", &["203.0.113.9"]), "192.0.2.7", "anybody may write that");
        assert_eq!(seen("10.1.2.3", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["1.1.1.1, 203.0.113.9, 10.9.9.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["1.1.1.1", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("::ffff:10.1.2.3", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["nonsense"]), "10.1.2.3");
        assert_eq!(seen("10.1.2.3", &[]), "10.1.2.3");
        assert!("10.0.0.0/33".parse::<Network>().is_err() && "x".parse::<Network>().is_err());
    }
}
