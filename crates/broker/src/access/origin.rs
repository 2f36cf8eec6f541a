//! The address a request comes from: the peer, or the address that a trusted proxy names.

use std::net::IpAddr;
use std::sync::Arc;

use brokkr_api::ErrorCode;
use http::{Extensions, HeaderMap, Method};
use ipnet::IpNet;

use crate::error::ApiError;

/// Request extension: the address of the peer, set by the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The properties of a request other than its caller.
#[derive(Clone, Debug)]
pub struct Origin {
    pub request_id: String,
    pub method: Method,
    /// The path template of the route table.
    pub route: String,
    pub path: String,
    pub address: Option<IpAddr>,
}

impl Origin {
    /// Returns the origin that the outermost middleware inserted.
    pub fn of(extensions: &Extensions) -> Result<Arc<Self>, ApiError> {
        let origin = extensions.get().cloned();
        origin
            .ok_or_else(|| ApiError::new(ErrorCode::BRK9001, "the request bypassed the outermost middleware"))
    }
}

/// Returns the address of the caller: the peer or, behind trusted proxies, the last address in
/// `X-Forwarded-For` that is not a trusted proxy itself. Anyone may have written the entries before it.
#[must_use]
pub fn address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
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
    fn only_a_trusted_proxy_may_name_the_address_of_its_peer() {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        let seen = |peer: &str, forwarded: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for list in forwarded {
                headers.append("x-forwarded-for", http::HeaderValue::from_static(list));
            }
            address(peer.parse().unwrap(), &headers, &trusted).to_string()
        };
        assert_eq!(seen("192.0.2.7", &["203.0.113.9"]), "192.0.2.7", "anyone can send this header");
        assert_eq!(seen("10.1.2.3", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["1.1.1.1, 203.0.113.9, 10.9.9.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["1.1.1.1", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("::ffff:10.1.2.3", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(seen("10.1.2.3", &["nonsense"]), "10.1.2.3");
        assert_eq!(seen("10.1.2.3", &[]), "10.1.2.3");
    }
}
