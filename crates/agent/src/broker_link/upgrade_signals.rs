//! What the poll and an upgrade of the agent tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct UpgradeSignals(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    wanted: Notify,
    is_under_way: AtomicBool,
}

impl UpgradeSignals {
    /// Notes that the broker offers an upgrade.
    pub fn want(&self) {
        self.0.wanted.notify_one();
    }

    /// Waits until the broker offers an upgrade.
    pub async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Sets whether an upgrade of this agent is neither confirmed nor undone. The upgrade then decides which process serves, so that a
    /// superseded one does not start again by itself.
    pub fn set_under_way(&self, is_under_way: bool) {
        self.0.is_under_way.store(is_under_way, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.0.is_under_way.load(Ordering::Relaxed)
    }
}
