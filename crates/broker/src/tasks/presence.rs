//! Stores when agents were last seen, in sorted batches.
//!
//! Waits for: a timer (10 s). Entries that cannot be stored stay in memory for the next round.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::state::presence::Presence;
use crate::store::presence::{presence_store, refusals_store};

const EVERY: Duration = Duration::from_secs(10);
/// Rows of one statement, so that its locks are short.
const BATCH: usize = 1000;

/// Stores presence until stopped, and once more at the end.
pub async fn run(presence: Presence, pool: PgPool, stop: CancellationToken) {
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        store_polls(&presence, &pool).await;
        store_refusals(&presence, &pool).await;
        if stopping {
            return;
        }
    }
}

async fn store_polls(presence: &Presence, pool: &PgPool) {
    for batch in presence.unstored_polls().chunks(BATCH) {
        if let Err(error) = presence_store(pool, batch).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "failed to store presence; will retry");
            return;
        }
        presence.polls_stored(batch);
    }
}

async fn store_refusals(presence: &Presence, pool: &PgPool) {
    for batch in presence.unstored_refusals().chunks(BATCH) {
        if let Err(error) = refusals_store(pool, batch).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "failed to store refused requests of agents; will retry");
            return;
        }
        presence.refusals_stored(batch);
    }
}
