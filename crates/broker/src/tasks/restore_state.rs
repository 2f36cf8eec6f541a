//! Refreshes the restore state from the database.
//!
//! Waits for: a timer (500 ms). If the database does not answer, the last known state stays.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::state::restore::RestoreState;

const EVERY: Duration = Duration::from_millis(500);

pub async fn run(state: RestoreState, pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = state.refresh(&pool).await {
            let error: &dyn std::error::Error = &error;
            // The outbox tail logs an unreachable database as an error.
            tracing::debug!(error, "failed to refresh the restore state; retrying");
        }
    }
}
