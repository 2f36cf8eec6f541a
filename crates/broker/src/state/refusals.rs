//! Refused attempts on their way to the audit log: a bounded queue, so that a flood costs neither memory nor
//! disk. When the queue is full, attempts are counted, not recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::domain::audit::AuditRecord;

const QUEUE: usize = 1000;

/// The sending end, for the guard.
#[derive(Clone, Debug)]
pub struct Refusals {
    queue: mpsc::Sender<AuditRecord>,
    dropped: Arc<AtomicU64>,
}

/// The receiving end, for `tasks::refusals`.
#[derive(Debug)]
pub struct RefusalQueue {
    queue: mpsc::Receiver<AuditRecord>,
    dropped: Arc<AtomicU64>,
}

impl Refusals {
    #[must_use]
    pub fn new() -> (Self, RefusalQueue) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        (Self { queue: sender, dropped: Arc::clone(&dropped) }, RefusalQueue { queue: receiver, dropped })
    }

    /// Queues a record, or drops it if the queue is full. Never waits.
    pub fn push(&self, record: AuditRecord) {
        if self.queue.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RefusalQueue {
    /// Takes up to `limit` records.
    pub fn take(&mut self, limit: usize) -> Vec<AuditRecord> {
        let mut records = Vec::new();
        while records.len() < limit
            && let Ok(record) = self.queue.try_recv()
        {
            records.push(record);
        }
        records
    }

    /// Counts records that were taken and could not be written.
    pub fn count_dropped(&self, records: usize) {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Returns the number of records dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}
