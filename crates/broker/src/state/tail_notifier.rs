//! Wakes the outbox tail after a commit of this replica, and reports whether the tail is alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// The connection between handlers and the outbox tail.
#[derive(Clone, Debug, Default)]
pub struct TailNotifier {
    committed: Arc<Notify>,
    highest: Arc<AtomicU64>,
    heartbeat: Arc<Heartbeat>,
}

#[derive(Debug)]
struct Heartbeat(Mutex<Instant>);

impl Default for Heartbeat {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl TailNotifier {
    /// Announces that a transaction was committed here.
    pub fn committed(&self, xid: u64) {
        self.highest.fetch_max(xid, Ordering::Relaxed);
        self.committed.notify_one();
    }

    /// Resolves after the next commit of this replica.
    pub async fn notified(&self) {
        self.committed.notified().await;
    }

    /// Returns the highest transaction that was committed here.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Returns when the tail last ran, whether or not the database answered.
    #[must_use]
    pub fn last_heartbeat(&self) -> Instant {
        *self.heartbeat.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the tail runs.
    pub fn beat(&self) {
        *self.heartbeat.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}
