//! Deletes what has had its time. Every replica does it; doing it twice does nothing.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::idempotency_keys::idempotency_key_delete_old;
use crate::store::outbox::outbox_delete_old;

const EVERY: Duration = Duration::from_secs(60);
/// A tail that is further behind loads anew.
const OUTBOX_SECONDS: f64 = 3600.0;
const KEY_SECONDS: f64 = 24.0 * 3600.0;

pub async fn run(pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = tidy(&pool).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "tidying waits for the next time");
        }
    }
}

async fn tidy(pool: &PgPool) -> Result<(), StoreError> {
    let rows = outbox_delete_old(pool, OUTBOX_SECONDS).await?;
    let keys = idempotency_key_delete_old(pool, KEY_SECONDS).await?;
    if rows + keys > 0 {
        tracing::debug!(rows, keys, "tidied");
    }
    Ok(())
}
