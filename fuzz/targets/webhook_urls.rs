//! Webhook URLs: an accepted URL names no address that the standard library classifies as special.
#![no_main]

use std::net::IpAddr;

use brokkr_broker::domain::webhooks::egress_policy::EgressPolicy;
use libfuzzer_sys::fuzz_target;
use url::Host;

fuzz_target!(|text: &str| {
    let Ok(url) = EgressPolicy::default().url(text) else { return };
    assert_eq!(url.scheme(), "https");
    assert!(url.username().is_empty() && url.password().is_none());
    assert!(matches!(url.port_or_known_default(), Some(443 | 8443)));
    let address = match url.host().expect("it has a host") {
        Host::Domain(name) => {
            assert!(name.parse::<IpAddr>().is_err(), "{name} is an address, not a name");
            return;
        }
        Host::Ipv4(address) => IpAddr::V4(address),
        Host::Ipv6(address) => IpAddr::V6(address).to_canonical(),
    };
    let inside = match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || v4.is_broadcast() || v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast(),
    };
    assert!(!inside && !address.is_loopback() && !address.is_unspecified(), "{address}");
});
