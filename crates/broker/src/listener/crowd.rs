//! How many connections there are from one address: a single peer must not take every place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Crowd {
    most: usize,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// A place in the crowd; free again when dropped.
#[derive(Debug)]
pub struct Place {
    crowd: Arc<Crowd>,
    address: IpAddr,
}

impl Crowd {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, addresses: Mutex::default() })
    }

    /// A place, unless the address has as many as it may.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = whole(address);
        let mut addresses = self.lock();
        let here = addresses.entry(address).or_default();
        if *here >= self.most {
            return None;
        }
        *here += 1;
        Some(Place { crowd: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has an IPv6 address has its whole network of 64 bits.
fn whole(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut addresses = self.crowd.lock();
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
    fn an_address_has_so_many_places_and_a_network_counts_as_one() {
        let crowd = Crowd::new(2);
        let enter = |text: &str| crowd.enter(text.parse().expect("an address"));
        let (one, _two) = (enter("10.0.0.1").expect("a place"), enter("::ffff:10.0.0.1").expect("a place"));
        assert!(enter("10.0.0.1").is_none());
        assert!(enter("10.0.0.2").is_some(), "another is not concerned");
        drop(one);
        assert!(enter("10.0.0.1").is_some());
        let _six = (enter("2001:db8::1").expect("a place"), enter("2001:db8::2").expect("a place"));
        assert!(enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::3").is_some());
        assert_eq!(crowd.lock().len(), 2, "those who left leave nothing");
    }
}
