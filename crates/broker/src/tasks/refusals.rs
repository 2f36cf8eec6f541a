//! Writes refused attempts to the audit log, at a bounded rate.
//!
//! Waits for: a timer (1 s). Each round writes what is due, as far as the rate allows, and logs how many attempts were
//! dropped.

use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::state::refusals::Refusals;
use crate::store::audit::audit_insert;

/// The largest number of entries written at once.
const BURST: usize = 500;
/// Entries that may be written each second in the long run: about 100 MB a day.
const REFILL: usize = 5;
const EVERY: Duration = Duration::from_secs(1);

/// Writes refused attempts until stopped, and once more at the end.
pub async fn run(refusals: Refusals, pool: PgPool, stop: CancellationToken) {
    let mut bucket = BURST;
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        bucket = (bucket + REFILL).min(BURST);
        let records = refusals.take(bucket, Instant::now(), stopping);
        if !records.is_empty() {
            bucket -= records.len();
            if let Err(error) = audit_insert(&pool, &records).await {
                refusals.count_dropped(records.iter().map(|record| record.count).sum());
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to write refused requests to the audit log; dropping them");
            }
        }
        let count = refusals.take_dropped();
        if count > 0 {
            tracing::warn!(count, "refused requests are missing in the audit log");
        }
        if stopping {
            return;
        }
    }
}
