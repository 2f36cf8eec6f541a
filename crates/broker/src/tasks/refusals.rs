//! Refused attempts go to the audit log beside the requests, and never more than the disk can take: a bounded
//! queue, and a bucket that a flood empties. What is left out is counted and logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access::audit::Deed;
use crate::store::audit::audit_insert;

const QUEUE: usize = 1000;
/// Written at once, at most.
const BURST: usize = 500;
/// Entries that may be written each second in the long run: about 100 MB a day.
const REFILL: usize = 5;
const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Refusals {
    queue: mpsc::Sender<Deed>,
    left_out: Arc<AtomicU64>,
}

/// The other end, for the task.
#[derive(Debug)]
pub struct Told {
    queue: mpsc::Receiver<Deed>,
    left_out: Arc<AtomicU64>,
}

impl Refusals {
    #[must_use]
    pub fn new() -> (Self, Told) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        (Self { queue: sender, left_out: Arc::clone(&left_out) }, Told { queue: receiver, left_out })
    }

    /// Never waits.
    pub fn tell(&self, deed: Deed) {
        if self.queue.try_send(deed).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Told {
    /// Writes until told to stop, and once more then.
    pub async fn run(mut self, pool: PgPool, stop: CancellationToken) {
        let mut bucket = BURST;
        loop {
            let stopping = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            bucket = (bucket + REFILL).min(BURST);
            let mut deeds = Vec::new();
            while deeds.len() < bucket
                && let Ok(deed) = self.queue.try_recv()
            {
                deeds.push(deed);
            }
            if !deeds.is_empty() {
                bucket -= deeds.len();
                if let Err(error) = audit_insert(&pool, &deeds).await {
                    self.left_out.fetch_add(deeds.len() as u64, Ordering::Relaxed);
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "refused attempts could not be recorded");
                }
            }
            let count = self.left_out.swap(0, Ordering::Relaxed);
            if count > 0 {
                tracing::warn!(count, "refused attempts were not recorded: there are too many");
            }
            if stopping {
                return;
            }
        }
    }
}
