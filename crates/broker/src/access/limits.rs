//! How often somebody may ask. Per principal, in buckets of their own for reading, writing and polling, so that
//! one who loops disturbs nobody else; per address only for requests that fail to say who they are: fifty
//! thousand agents behind one address are fifty thousand principals.
//!
//! Counted in memory, per replica. What is kept is bounded; whoever is forgotten begins with a full bucket.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;
use governor::clock::Clock as _;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use uuid::Uuid;

use super::caller::Caller;
use crate::error::ApiError;

/// Principals and addresses that are remembered, at most.
const MOST: u64 = 200_000;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);
/// Those who are refused come back spread over this many seconds.
const SPREAD: u64 = 10;

/// Failures of one address, a second in the long run and at once.
const FAILURES: (u32, u32) = (20, 200);
/// An address that fails too often is not listened to for this long.
const DEAF: Duration = Duration::from_secs(5);

/// What a request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    Reading,
    Writing,
    Polling,
    /// With a join token: only those that fail are counted, by address.
    Registering,
}

impl Bucket {
    /// By the name of a route, `METHOD /path`.
    #[must_use]
    pub fn of(route: &str) -> Self {
        if route.ends_with("/target-state") {
            Self::Polling
        } else if route.ends_with("/agents/register") {
            Self::Registering
        } else if route.starts_with("GET ") {
            Self::Reading
        } else {
            Self::Writing
        }
    }

    /// A second in the long run, and at once.
    fn allowed(self) -> (u32, u32) {
        match self {
            Self::Reading | Self::Writing => (1000, 5000),
            Self::Polling => (20, 200),
            Self::Registering => FAILURES,
        }
    }

    fn limiter(self) -> Arc<DefaultDirectRateLimiter> {
        let (rate, burst) = self.allowed();
        let least = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Arc::new(RateLimiter::direct(Quota::per_second(least(rate)).allow_burst(least(burst))))
    }
}

#[derive(Debug)]
pub struct RateLimits {
    enabled: bool,
    principals: moka::future::Cache<(Bucket, Uuid), Arc<DefaultDirectRateLimiter>>,
    /// Failures to say who one is.
    addresses: moka::future::Cache<IpAddr, Arc<DefaultDirectRateLimiter>>,
    /// Addresses that fail too often.
    deaf_to: moka::future::Cache<IpAddr, ()>,
}

impl RateLimits {
    #[must_use]
    pub fn new(enabled: bool) -> Self {
        let cache = moka::future::Cache::builder().max_capacity(MOST).time_to_idle(FORGOTTEN_AFTER);
        let addresses = moka::future::Cache::builder().max_capacity(MOST).time_to_idle(FORGOTTEN_AFTER);
        let deaf_to = moka::future::Cache::builder().max_capacity(MOST).time_to_live(DEAF).build();
        let (principals, addresses) = (cache.build(), addresses.build());
        Self { enabled, principals, addresses, deaf_to }
    }

    /// Counts a request of somebody who is known.
    pub async fn known(&self, bucket: Bucket, caller: &Caller) -> Result<(), ApiError> {
        self.allowance(bucket, caller).await.check()
    }

    /// What somebody who is known may still do, to be kept by whoever asks for it often.
    pub async fn allowance(&self, bucket: Bucket, caller: &Caller) -> Allowance {
        let principal = match caller {
            Caller::Token(token) => token.token_id.0,
            Caller::Agent(agent) => agent.id.0,
        };
        if !self.enabled {
            return Allowance { limiter: None, principal };
        }
        let limiter = self.principals.get_with((bucket, principal), async { bucket.limiter() }).await;
        Allowance { limiter: Some(limiter), principal }
    }

    /// Whether an address that has no credential yet is listened to.
    pub async fn listens_to(&self, address: Option<IpAddr>) -> Result<(), ApiError> {
        match address.map(network) {
            Some(address) if self.enabled && self.deaf_to.get(&address).await.is_some() => {
                Err(refused(DEAF.as_secs(), address.to_string().as_bytes()))
            }
            _ => Ok(()),
        }
    }

    /// Counts a request that came without a good credential.
    pub async fn failed(&self, address: Option<IpAddr>) -> Result<(), ApiError> {
        let (Some(address), true) = (address.map(network), self.enabled) else { return Ok(()) };
        let limiter = self.addresses.get_with(address, async { Bucket::Registering.limiter() }).await;
        let checked = check(&limiter, address.to_string().as_bytes());
        if checked.is_err() {
            self.deaf_to.insert(address, ()).await;
        }
        checked
    }
}

/// How much more somebody may do.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// None: as much as they want.
    limiter: Option<Arc<DefaultDirectRateLimiter>>,
    principal: Uuid,
}

impl Allowance {
    /// Counts a request.
    pub fn check(&self) -> Result<(), ApiError> {
        self.limiter.as_ref().map_or(Ok(()), |limiter| check(limiter, self.principal.as_bytes()))
    }
}

fn check(limiter: &DefaultDirectRateLimiter, who: &[u8]) -> Result<(), ApiError> {
    let now = || limiter.clock().now();
    limiter.check().map_err(|until| refused(until.wait_time_from(now()).as_secs() + 1, who))
}

fn refused(wait: u64, who: &[u8]) -> ApiError {
    let spread = u64::from(Checksum::of(who).0[0]) % SPREAD;
    let detail = "more requests than are allowed; this one was not carried out";
    ApiError::new(ErrorCode::BRK1006, detail).retry_after(wait + spread)
}

/// Whoever has an IPv6 address has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::AgentId;

    use super::*;
    use crate::access::caller::AgentCaller;

    fn agent() -> Caller {
        let key: Arc<[u8]> = Arc::from([0u8; 32]);
        Caller::Agent(AgentCaller {
            id: AgentId::generate(),
            public_key: Arc::clone(&key),
            signed_with: key,
            until: i64::MAX,
        })
    }

    #[tokio::test]
    async fn who_loops_is_refused_and_disturbs_neither_others_nor_its_own_writes() {
        let limits = RateLimits::new(true);
        let (one, other) = (agent(), agent());
        let mut refused = 0;
        for _ in 0..1000 {
            refused += usize::from(limits.known(Bucket::Polling, &one).await.is_err());
        }
        assert!(refused > 500, "{refused}");
        assert!(limits.known(Bucket::Polling, &other).await.is_ok());
        assert!(limits.known(Bucket::Writing, &one).await.is_ok());
        assert!(RateLimits::new(false).known(Bucket::Polling, &one).await.is_ok());
    }

    #[tokio::test]
    async fn who_is_not_known_is_counted_by_address_and_fifty_thousand_agents_behind_it_are_not() {
        let limits = RateLimits::new(true);
        let address: Option<IpAddr> = Some("2001:db8::1".parse().unwrap());
        let mut refused = 0;
        for last in 0..1000u16 {
            let neighbour = Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)));
            refused += usize::from(limits.failed(neighbour).await.is_err());
        }
        assert!(refused > 500, "{refused}");
        assert_eq!(limits.failed(address).await.unwrap_err().status(), 429);
        assert!(limits.listens_to(address).await.is_err());
        for _ in 0..50_000 {
            assert!(limits.known(Bucket::Polling, &agent()).await.is_ok());
        }
        assert!(limits.failed(Some("192.0.2.1".parse().unwrap())).await.is_ok());
    }
}
