//! Rate limits. Each principal has separate buckets for reading, writing and polling, so that a caller in a
//! loop does not affect others. Only requests that fail to authenticate are limited per address: fifty
//! thousand agents behind one address are fifty thousand principals.
//!
//! Requests are counted in memory, per replica. The number of entries is bounded; an evicted principal begins
//! with a full bucket.
//!
//! # Addresses and credentials
//!
//! An address that fails too often is blocked for a moment. Honest callers may share it: agents behind one gateway, or a
//! pipeline behind the same proxy as somebody who guesses tokens. So a block never applies to a credential that this
//! replica can check, or has checked before:
//!
//! | credential                                            | on a blocked address          | costs                       |
//! |-------------------------------------------------------|-------------------------------|-----------------------------|
//! | assertion signed with the key in the index            | served                        | a signature check           |
//! | token or session that was valid here within the last hour | served                    | a query in several seconds  |
//! | token or session that was unknown a moment ago        | refused as unknown (401)      | nothing                     |
//! | any other one; assertion signed with any other key    | refused (429), without a query | nothing                    |
//!
//! The last row includes honest callers whose credential is new to this replica. They retry, and succeed when the block
//! ends; a block lasts for [`BLOCKED_FOR`], and only failures prolong it.
//!
//! Failures are counted when a query has found nothing, so many concurrent requests could all begin their query before
//! the first failure is counted. [`RateLimits::admit_lookup`] lets only a few queries for new credentials run at a time
//! and checks the address again afterwards. It also keeps them from taking all database connections.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;
use governor::clock::Clock as _;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::caller::Caller;
use crate::error::ApiError;

/// The largest number of principals and addresses in memory.
const CAPACITY: u64 = 200_000;
const EVICTED_AFTER: Duration = Duration::from_secs(120);
/// Retries of refused callers are spread over this many seconds.
const SPREAD: u64 = 10;

/// Authentication failures allowed per address: rate per second, and burst.
const FAILURES: (u32, u32) = (20, 200);
/// How long an address that fails too often is blocked.
const BLOCKED_FOR: Duration = Duration::from_secs(5);
/// Queries for credentials that this replica has not seen before, at a time. A small part of the database connections.
const LOOKUPS: usize = 4;
/// How long a request waits for its turn to query. With a responsive database it is a matter of milliseconds.
const LOOKUP_WAIT: Duration = Duration::from_secs(5);

/// The bucket that a request is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    Reading,
    Writing,
    Polling,
    /// Registration with a join token: only failures are counted, by address, together with those of other
    /// requests.
    Registering,
    /// Sign-ins with a token. Each is an entry of the audit log, and roles that only read can write no others.
    SigningIn,
}

impl Bucket {
    /// Returns the bucket of a route (`METHOD /path`).
    #[must_use]
    pub fn of(route: &str) -> Self {
        if route.ends_with("/target-state") {
            Self::Polling
        } else if route.ends_with("/agents/register") {
            Self::Registering
        } else if route == "POST /api/v1/sessions" {
            Self::SigningIn
        } else if route.starts_with("GET ") {
            Self::Reading
        } else {
            Self::Writing
        }
    }

    /// Returns the allowed rate per second, and the allowed burst.
    fn allowed(self) -> (u32, u32) {
        match self {
            Self::Reading | Self::Writing => (1000, 5000),
            Self::Polling => (20, 200),
            Self::Registering => FAILURES,
            Self::SigningIn => (1, 100),
        }
    }

    fn limiter(self) -> Arc<DefaultDirectRateLimiter> {
        let (rate, burst) = self.allowed();
        let non_zero = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Arc::new(RateLimiter::direct(Quota::per_second(non_zero(rate)).allow_burst(non_zero(burst))))
    }
}

#[derive(Debug)]
pub struct RateLimits {
    enabled: bool,
    principals: moka::future::Cache<(Bucket, Uuid), Arc<DefaultDirectRateLimiter>>,
    /// Authentication failures.
    addresses: moka::future::Cache<IpAddr, Arc<DefaultDirectRateLimiter>>,
    /// Addresses that fail too often.
    blocked: moka::future::Cache<IpAddr, ()>,
    lookups: Semaphore,
    waits: Semaphore,
}

impl RateLimits {
    #[must_use]
    pub fn new(enabled: bool) -> Self {
        let cache = moka::future::Cache::builder().max_capacity(CAPACITY).time_to_idle(EVICTED_AFTER);
        let addresses = moka::future::Cache::builder().max_capacity(CAPACITY).time_to_idle(EVICTED_AFTER);
        let blocked = moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(BLOCKED_FOR).build();
        let (principals, addresses) = (cache.build(), addresses.build());
        Self {
            enabled,
            principals,
            addresses,
            blocked,
            lookups: Semaphore::new(LOOKUPS),
            waits: Semaphore::new(LOOKUPS),
        }
    }

    /// Counts a request of an authenticated caller.
    pub async fn check_caller(&self, bucket: Bucket, caller: &Caller) -> Result<(), ApiError> {
        self.allowance(bucket, caller).await.check()
    }

    /// Returns the limit of an authenticated caller, for repeated use.
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

    /// Refuses an address that is blocked.
    pub async fn check_address(&self, address: Option<IpAddr>) -> Result<(), ApiError> {
        match address.map(network) {
            Some(address) if self.enabled && self.blocked.get(&address).await.is_some() => {
                Err(refused(BLOCKED_FOR.as_secs(), address.to_string().as_bytes()))
            }
            _ => Ok(()),
        }
    }

    /// Waits until a credential that this replica does not know may be looked up in the database. The lookup ends
    /// when the permit is dropped.
    pub async fn admit_lookup(&self, address: Option<IpAddr>) -> Result<SemaphorePermit<'_>, ApiError> {
        self.admit(&self.lookups, address).await
    }

    /// Waits until an agent that this replica does not know may wait for a current index. Apart from lookups, which are
    /// short: requests with invented agents must not delay the lookups of others.
    pub async fn admit_wait(&self, address: Option<IpAddr>) -> Result<SemaphorePermit<'_>, ApiError> {
        self.admit(&self.waits, address).await
    }

    async fn admit<'a>(
        &self,
        permits: &'a Semaphore,
        address: Option<IpAddr>,
    ) -> Result<SemaphorePermit<'a>, ApiError> {
        self.check_address(address).await?;
        let permit = tokio::time::timeout(LOOKUP_WAIT, permits.acquire()).await;
        let Ok(Ok(permit)) = permit else {
            let detail = "too many credentials are being looked up; this request was not processed";
            return Err(ApiError::new(ErrorCode::BRK3008, detail).retry_after(1));
        };
        // Requests before this one may have failed meanwhile.
        self.check_address(address).await?;
        Ok(permit)
    }

    /// Counts a request that failed to authenticate.
    pub async fn count_failure(&self, address: Option<IpAddr>) -> Result<(), ApiError> {
        let (Some(address), true) = (address.map(network), self.enabled) else { return Ok(()) };
        let limiter = self.addresses.get_with(address, async { Bucket::Registering.limiter() }).await;
        let checked = check(&limiter, address.to_string().as_bytes());
        if checked.is_err() {
            self.blocked.insert(address, ()).await;
        }
        checked
    }
}

/// The limit of one caller.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// None: unlimited.
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
    let detail = "too many requests; this one was not processed";
    ApiError::new(ErrorCode::BRK1006, detail).retry_after(wait + spread)
}

/// Returns the address that is counted. For IPv6 it stands for the whole /64 network, because one owner
/// usually has all of it.
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
    async fn a_caller_in_a_loop_is_refused_without_affecting_others_or_its_own_writes() {
        let limits = RateLimits::new(true);
        let (one, other) = (agent(), agent());
        let mut refused = 0;
        for _ in 0..1000 {
            refused += usize::from(limits.check_caller(Bucket::Polling, &one).await.is_err());
        }
        assert!(refused > 500, "{refused}");
        assert!(limits.check_caller(Bucket::Polling, &other).await.is_ok());
        assert!(limits.check_caller(Bucket::Writing, &one).await.is_ok());
        let mut sign_ins = 0;
        for _ in 0..1000 {
            sign_ins += usize::from(limits.check_caller(Bucket::SigningIn, &one).await.is_ok());
        }
        assert!((100..110).contains(&sign_ins), "{sign_ins}");
        assert!(RateLimits::new(false).check_caller(Bucket::Polling, &one).await.is_ok());
    }

    #[tokio::test]
    async fn failures_are_counted_by_address_and_authenticated_agents_are_not() {
        let limits = RateLimits::new(true);
        let address: Option<IpAddr> = Some("2001:db8::1".parse().unwrap());
        let mut refused = 0;
        for last in 0..1000u16 {
            let neighbour = Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)));
            refused += usize::from(limits.count_failure(neighbour).await.is_err());
        }
        assert!(refused > 500, "{refused}");
        assert_eq!(limits.count_failure(address).await.unwrap_err().status(), 429);
        assert!(limits.check_address(address).await.is_err());
        for _ in 0..50_000 {
            assert!(limits.check_caller(Bucket::Polling, &agent()).await.is_ok());
        }
        assert!(limits.count_failure(Some("192.0.2.1".parse().unwrap())).await.is_ok());
    }
}
