//! Tests the policy with a list of dangerous addresses, and against the classification of the standard
//! library.

use proptest::prelude::*;

use super::*;

fn strict() -> EgressPolicy {
    EgressPolicy::default()
}

#[test]
fn only_public_https_addresses_are_allowed() {
    let long = format!("https://example.com/{}", "a".repeat(MAX_URL));
    for (url, expected) in [
        ("https://hooks.example.com/brokkr?x=1", Ok(())),
        ("https://hooks.example.com:8443/", Ok(())),
        ("https://8.8.8.8/", Ok(())),
        ("https://[2606:4700::1]/", Ok(())),
        ("http://hooks.example.com/", Err(Refusal::NotHttps)),
        ("ftp://hooks.example.com/", Err(Refusal::NotHttps)),
        ("file:///etc/passwd", Err(Refusal::NotHttps)),
        ("hooks.example.com", Err(Refusal::NotAnAddress)),
        ("https://", Err(Refusal::NotAnAddress)),
        (&long, Err(Refusal::NotAnAddress)),
        ("https://me@example.com/", Err(Refusal::Credentials)),
        ("https://me:secret@example.com/", Err(Refusal::Credentials)),
        ("https://hooks.example.com:22/", Err(Refusal::Port(22))),
        ("https://hooks.example.com:6443/", Err(Refusal::Port(6443))),
        // The same loopback address, written in the ways that parsers disagree about.
        ("https://127.0.0.1/", Err(Refusal::NotPublic(Ipv4Addr::LOCALHOST.into()))),
        ("https://0x7f.1/", Err(Refusal::NotPublic(Ipv4Addr::LOCALHOST.into()))),
        ("https://2130706433/", Err(Refusal::NotPublic(Ipv4Addr::LOCALHOST.into()))),
        ("https://0177.0.0.1/", Err(Refusal::NotPublic(Ipv4Addr::LOCALHOST.into()))),
        ("https://[::1]/", Err(Refusal::NotPublic(Ipv6Addr::LOCALHOST.into()))),
    ] {
        assert_eq!(strict().url(url).map(|_| ()), expected, "{url}");
    }
}

#[test]
fn special_addresses_are_refused_however_they_are_wrapped() {
    for bad in [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "127.255.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "3fff:abc::1",
        "5f00::1",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        let address = bad.parse().unwrap();
        assert_eq!(strict().address(address), Err(Refusal::NotPublic(address)), "{bad}");
    }
    for good in [
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.169.0.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1",
        "2001:4860:4860::8888",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ] {
        assert_eq!(strict().address(good.parse().unwrap()), Ok(()), "{good}");
    }
}

#[test]
fn one_bad_address_refuses_all_and_the_operator_may_allow_more() {
    let (public, private) = ("1.1.1.1".parse().unwrap(), "10.1.2.3".parse().unwrap());
    assert_eq!(strict().addresses(&[public]), Ok(()));
    assert_eq!(strict().addresses(&[public, private]), Err(Refusal::NotPublic(private)));
    assert_eq!(strict().addresses(&[]), Err(Refusal::Nowhere));
    let open =
        EgressPolicy { networks: vec!["10.1.0.0/16".parse().unwrap()], plain_http: true, any_port: true };
    assert_eq!(open.addresses(&[public, private]), Ok(()));
    assert_eq!(open.address("::ffff:10.1.0.1".parse().unwrap()), Ok(()));
    assert!(open.address("10.2.0.1".parse().unwrap()).is_err());
    assert!(open.url("http://10.1.2.3:8080/").is_ok());
    assert!(open.url("http://10.2.2.3:8080/").is_err());
}

proptest! {
    #[test]
    fn special_v4_addresses_of_the_standard_library_are_refused(bits in any::<u32>(), near in 0usize..12) {
        // Random addresses are rarely special: half of them are moved into a special range.
        let first = [0, 10, 127, 169, 172, 192, 198, 203, 224, 255, 100, 240][near];
        for bits in [bits, bits & 0x00ff_ffff | first << 24] {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_broadcast() || address.is_documentation() || address.is_multicast()
                || address.is_unspecified();
            if special {
                prop_assert!(strict().address(address.into()).is_err(), "{address}");
            }
            let mapped = address.to_ipv6_mapped();
            let nat64: Ipv6Addr = format!("64:ff9b::{address}").parse().unwrap();
            for wrapped in [mapped, nat64] {
                prop_assert_eq!(
                    strict().address(wrapped.into()).is_ok(), strict().address(address.into()).is_ok(), "{}", wrapped
                );
            }
            let six_to_four: Ipv6Addr = format!("2002:{:x}:{:x}::1", bits >> 16, bits & 0xffff).parse().unwrap();
            prop_assert!(strict().address(six_to_four.into()).is_err());
        }
    }

    #[test]
    fn special_v6_addresses_of_the_standard_library_are_refused(bits in any::<u128>(), near in 0usize..6) {
        let first: u128 = [0xfc00, 0xfe80, 0xff00, 0x0000, 0xfd00, 0x2000][near];
        for bits in [bits, bits & (u128::MAX >> 16) | first << 112] {
            let address = Ipv6Addr::from_bits(bits);
            let special = address.is_loopback() || address.is_unspecified() || address.is_multicast()
                || address.is_unique_local() || address.is_unicast_link_local();
            if special {
                prop_assert!(strict().address(address.into()).is_err(), "{address}");
            }
        }
    }

    #[test]
    fn any_text_is_checked_without_a_panic(text in "\\PC{0,80}", host in "[a-z0-9.:\\[\\]@%-]{0,40}") {
        let _ = strict().url(&text);
        let _ = strict().url(&format!("https://{host}/"));
    }
}
