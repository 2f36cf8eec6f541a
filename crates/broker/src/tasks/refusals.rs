//! Writes refused attempts to the audit log, at a bounded rate.
//!
//! Waits for: a timer (1 s). Each round writes what is queued, as far as the rate allows, and logs how many attempts were
//! dropped.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::state::refusals::RefusalQueue;
use crate::store::audit::audit_insert;

/// The largest number of entries written at once.
const BURST: usize = 500;
/// Entries that may be written each second in the long run: about 100 MB a day.
const REFILL: usize = 5;
const EVERY: Duration = Duration::from_secs(1);

/// Writes refused attempts until stopped, and once more at the end.
pub async fn run(mut queue: RefusalQueue, pool: PgPool, stop: CancellationToken) {
    let mut bucket = BURST;
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        bucket = (bucket + REFILL).min(BURST);
        let records = queue.take(bucket);
        if !records.is_empty() {
            bucket -= records.len();
            if let Err(error) = audit_insert(&pool, &records).await {
                queue.count_dropped(records.len());
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to write refused requests to the audit log; dropping them");
            }
        }
        let count = queue.take_dropped();
        if count > 0 {
            tracing::warn!(count, "refused requests are missing in the audit log");
        }
        if stopping {
            return;
        }
    }
}
