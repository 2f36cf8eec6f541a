//! Notices agents that fell silent. One replica looks at a time, so that a large fleet is not read by each; if two do
//! after all, each agent is still told of once.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::duties::duty_claim;
use crate::store::presence::presence_mark_silent;

const EVERY: Duration = Duration::from_secs(15);

pub async fn run(pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = look(&pool).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "silent agents are looked for the next time");
        }
    }
}

async fn look(pool: &PgPool) -> Result<(), StoreError> {
    if duty_claim(pool, "silence", EVERY).await? {
        let silent = presence_mark_silent(pool).await?;
        if !silent.is_empty() {
            tracing::warn!(agents = silent.len(), "agents fell silent");
        }
    }
    Ok(())
}
