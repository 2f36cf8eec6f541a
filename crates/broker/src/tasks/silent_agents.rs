//! Marks agents that no longer poll.
//!
//! Waits for: a timer (15 s). One replica does this for all, so that not every replica reads a large fleet.
//! Should two do it at once, each agent is still marked once.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::presence::presence_mark_silent;
use crate::store::task_claims::task_claim;

const EVERY: Duration = Duration::from_secs(15);

pub async fn run(pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = check(&pool).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "failed to check for silent agents; will retry");
        }
    }
}

async fn check(pool: &PgPool) -> Result<(), StoreError> {
    if task_claim(pool, "silent_agents", EVERY).await? {
        let silent = presence_mark_silent(pool).await?;
        if !silent.is_empty() {
            tracing::warn!(agents = silent.len(), "agents became silent");
        }
    }
    Ok(())
}
