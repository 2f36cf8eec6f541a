//! Whether the caller of an open stream may still read it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::access::Caller;
use crate::access::binding::Purpose;
use crate::access::credentials::CACHED_FOR;
use crate::access::origin::Origin;
use crate::http::guard::authenticate;
use crate::state::Broker;

/// How long a checked permission is trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(3);
/// A check may find a credential that was read before it was revoked. Revoked credentials are refused within five seconds.
const _: () = assert!(TRUSTED_FOR.as_secs() + CACHED_FOR.as_secs() <= 5);

/// Checks the credential of an open stream again and again.
#[derive(Debug)]
pub struct PermissionWatch {
    broker: Arc<Broker>,
    pub caller: Caller,
    headers: HeaderMap,
    origin: Arc<Origin>,
    checked_at: Instant,
}

impl PermissionWatch {
    /// The guard has just checked the caller.
    pub fn begin(broker: Arc<Broker>, caller: Caller, headers: HeaderMap, origin: Arc<Origin>) -> Self {
        Self { broker, caller, headers, origin, checked_at: Instant::now() }
    }

    /// Returns when the caller has lost the permission. Can be dropped and called again, which discards a check that is under way: call
    /// `is_still_permitted` before anything is sent.
    pub async fn lost(&mut self) {
        while self.is_still_permitted().await {
            tokio::time::sleep_until(self.checked_at + TRUSTED_FOR).await;
        }
    }

    /// Returns whether the credential is still valid and has the same role, unless this was checked a moment ago.
    pub async fn is_still_permitted(&mut self) -> bool {
        if self.checked_at.elapsed() < TRUSTED_FOR {
            return true;
        }
        let now = authenticate(&self.broker, &self.headers, Purpose::Read, &self.origin).await;
        self.checked_at = Instant::now();
        match (now.map(|now| now.caller), &self.caller) {
            (Ok(Caller::Token(now)), Caller::Token(before)) => {
                now.token_id == before.token_id && now.role == before.role
            }
            _ => false,
        }
    }
}
