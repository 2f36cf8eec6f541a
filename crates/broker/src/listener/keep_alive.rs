//! Which connections may stay open after a response.
//!
//! A connection on which a caller has authenticated may stay. One that serves only callers without a credential, such
//! as health checks and guesses, may stay only while few others do: two addresses that repeat `GET /livez` on as many
//! connections as they can open would otherwise keep every agent out. Beyond the limit each response closes its
//! connection, so that requests are still answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Caller;

/// The state of one connection.
#[derive(Debug)]
pub struct KeepAlive {
    /// Permits of connections on which nobody has authenticated.
    permits: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    is_authenticated: AtomicBool,
}

impl KeepAlive {
    pub fn new(permits: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { permits, permit: Mutex::default(), is_authenticated: AtomicBool::new(false) })
    }

    /// Returns whether the connection may stay open after this response.
    pub fn after(&self, response: &Response) -> bool {
        if self.is_authenticated.load(Ordering::Relaxed) {
            return true;
        }
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the guard inserts a caller.
        if response.extensions().get::<Caller>().is_some() {
            self.is_authenticated.store(true, Ordering::Relaxed);
            *permit = None;
            return true;
        }
        if permit.is_none() {
            *permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        }
        permit.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use brokkr_api::AgentId;

    use super::*;
    use crate::access::caller::AgentCaller;

    #[test]
    fn connections_without_a_caller_share_a_limit_until_one_authenticates() {
        let permits = Arc::new(Semaphore::new(1));
        let connection = || KeepAlive::new(Arc::clone(&permits));
        let health = || Response::new(Body::empty());
        let authenticated = || {
            let key: Arc<[u8]> = Arc::from([0u8; 32]);
            let caller = AgentCaller {
                id: AgentId::generate(),
                public_key: Arc::clone(&key),
                signed_with: key,
                until: i64::MAX,
            };
            let mut response = health();
            response.extensions_mut().insert(Caller::Agent(caller));
            response
        };
        let (one, two) = (connection(), connection());
        assert!(one.after(&health()) && one.after(&health()));
        assert!(!two.after(&health()), "the limit is reached");
        assert!(two.after(&authenticated()) && two.after(&health()));
        assert!(one.after(&authenticated()), "it gives its permit back");
        assert!(connection().after(&health()));
    }
}
