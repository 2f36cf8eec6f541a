//! Limits the number of connections per address, so that one peer cannot use them all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct PerAddressLimit {
    max: usize,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// The permit of one connection; released when dropped.
#[derive(Debug)]
pub struct AddressPermit {
    limit: Arc<PerAddressLimit>,
    address: IpAddr,
}

impl PerAddressLimit {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, addresses: Mutex::default() })
    }

    /// Returns a permit, unless the address has reached the limit.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let address = counted(address);
        let mut addresses = self.lock();
        let here = addresses.entry(address).or_default();
        if *here >= self.max {
            return None;
        }
        *here += 1;
        Some(AddressPermit { limit: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the address that is counted. The owner of an IPv6 address has the whole /64 network.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut addresses = self.limit.lock();
        if let Some(here) = addresses.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_limit_and_an_ipv6_network_counts_as_one_address() {
        let limit = PerAddressLimit::new(2);
        let acquire = |text: &str| limit.acquire(text.parse().expect("an address"));
        let (one, _two) =
            (acquire("10.0.0.1").expect("a permit"), acquire("::ffff:10.0.0.1").expect("a permit"));
        assert!(acquire("10.0.0.1").is_none());
        assert!(acquire("10.0.0.2").is_some(), "another address is not affected");
        drop(one);
        assert!(acquire("10.0.0.1").is_some());
        let _six = (acquire("2001:db8::1").expect("a permit"), acquire("2001:db8::2").expect("a permit"));
        assert!(acquire("2001:db8::3").is_none());
        assert!(acquire("2001:db8:0:1::3").is_some());
        assert_eq!(limit.lock().len(), 2, "released permits leave nothing behind");
    }
}
