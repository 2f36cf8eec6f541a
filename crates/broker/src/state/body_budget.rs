//! A budget for the request bodies that this replica has in memory.
//!
//! A body is charged as it arrives: a caller that announces 8 MiB and sends one byte costs one byte. It is released
//! when the last reference to its bytes is dropped, so that the budget is what the bodies really use. When a share is
//! used up, further bodies are refused instead of growing the process until the kernel kills it.
//!
//! Callers without a credential have their own, small share. However many of them there are, they cannot take the
//! memory of authenticated ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Callers without a credential get one part of this many. The only bodies that they may send are registrations.
const PARTS: usize = 16;

/// The budget is used up.
#[derive(Debug, PartialEq, Eq)]
pub struct BudgetExhausted;

#[derive(Debug)]
pub struct BodyBudget {
    authenticated: Arc<Share>,
    unauthenticated: Arc<Share>,
}

#[derive(Debug)]
struct Share {
    bytes: usize,
    used: AtomicUsize,
}

impl Share {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, used: AtomicUsize::new(0) })
    }

    fn take(&self, bytes: usize) -> Result<(), BudgetExhausted> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used <= self.bytes {
            return Ok(());
        }
        self.give_back(bytes);
        Err(BudgetExhausted)
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl BodyBudget {
    /// Divides the bytes among callers with and without a credential.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let unauthenticated = bytes / PARTS;
        Self {
            authenticated: Share::new(bytes - unauthenticated),
            unauthenticated: Share::new(unauthenticated),
        }
    }

    /// Returns the buffer of a body that can have up to `limit` bytes, empty at first.
    #[must_use]
    pub fn buffer(&self, limit: usize, is_authenticated: bool) -> BodyBuffer {
        let share = if is_authenticated { &self.authenticated } else { &self.unauthenticated };
        BodyBuffer { bytes: Vec::new(), limit, charged: 0, share: Arc::clone(share) }
    }

    /// Returns the bytes in use, of callers with and without a credential.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        let used = |share: &Share| share.used.load(Ordering::Relaxed);
        (used(&self.authenticated), used(&self.unauthenticated))
    }
}

/// A body that is being received. Its memory is charged to a share until it is dropped.
#[derive(Debug)]
pub struct BodyBuffer {
    bytes: Vec<u8>,
    /// The caller refuses larger bodies, so more than this is never reserved in advance.
    limit: usize,
    charged: usize,
    share: Arc<Share>,
}

impl BodyBuffer {
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a chunk. The chunk is copied: it is a part of a larger buffer, which it would keep in memory.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), BudgetExhausted> {
        let needed = self.bytes.len() + chunk.len();
        if needed > self.charged {
            // In doubling steps, so that a body of many small chunks is not copied for each of them.
            let capacity = needed.max(self.limit.min(2 * self.bytes.len()));
            self.share.take(capacity - self.charged)?;
            self.charged = capacity;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// Returns the bytes, which stay charged until their last clone is dropped.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for BodyBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        self.share.give_back(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_charged_as_it_arrives_and_released_with_its_last_clone() {
        let budget = BodyBudget::new(1600);
        let mut body = budget.buffer(1000, true);
        assert_eq!(budget.used(), (0, 0), "nothing has arrived yet");
        body.push(&[1; 100]).unwrap();
        assert_eq!(budget.used(), (100, 0));
        body.push(&[2; 10]).unwrap();
        assert_eq!(budget.used(), (200, 0), "the memory that was reserved counts");
        let mut limited = budget.buffer(120, true);
        limited.push(&[0; 100]).unwrap();
        limited.push(&[0; 10]).unwrap();
        assert_eq!(budget.used(), (320, 0), "nothing is reserved beyond the limit of the route");
        drop(limited);
        let bytes = body.into_bytes();
        assert_eq!((bytes.len(), bytes[0], bytes[109]), (110, 1, 2));
        let clone = bytes.clone();
        drop(bytes);
        assert_eq!(budget.used(), (200, 0));
        drop(clone);
        assert_eq!(budget.used(), (0, 0));
    }

    #[test]
    fn callers_without_a_credential_cannot_use_the_share_of_the_others() {
        let budget = BodyBudget::new(1600);
        let mut bodies: Vec<_> = (0..10).map(|_| budget.buffer(1000, false)).collect();
        let accepted = bodies.iter_mut().filter_map(|body| body.push(&[0; 30]).ok()).count();
        assert_eq!((accepted, budget.used()), (3, (0, 90)));
        assert_eq!(budget.buffer(2000, true).push(&[0; 1500]), Ok(()));
        assert_eq!(budget.buffer(2000, true).push(&[0; 1501]), Err(BudgetExhausted));
        assert_eq!(budget.used(), (0, 90), "a refused body leaves nothing behind");
        drop(bodies);
        assert_eq!(budget.buffer(1000, false).push(&[0; 100]), Ok(()));
    }
}
