//! Ends suspensions when their time is over.
//!
//! Waits for: a timer (5 s). Every replica does it. Without a suspension in the index, it asks the database nothing. Only time in which a
//! broker runs counts, in small steps, so that a clock that is set ends nothing early. An agent that is cut off counts by itself.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::StackId;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::state::Broker;
use crate::store::outbox::{OutboxNotification, outbox_insert_on_conn};
use crate::store::suspensions::{suspension_count_down, suspension_expire_on_conn};
use crate::store::{Doing as _, StoreError};

const EVERY: Duration = Duration::from_secs(5);

pub async fn run(broker: Arc<Broker>, pool: PgPool, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if !broker.index.snapshot().has_suspension() {
            continue;
        }
        if let Err(error) = round(&pool).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "failed to count the time of suspensions; retrying");
        }
    }
}

async fn round(pool: &PgPool) -> Result<(), StoreError> {
    for (project, stack) in suspension_count_down(pool, EVERY.as_secs_f64() / 2.0).await? {
        expire(pool, &project, stack).await?;
    }
    Ok(())
}

async fn expire(pool: &PgPool, project: &str, stack: StackId) -> Result<(), StoreError> {
    let doing = "end a suspension";
    let mut transaction = pool.begin().await.doing(doing)?;
    let ended = suspension_expire_on_conn(&mut transaction, project, stack).await?;
    // Another replica may have ended them.
    if ended > 0 {
        outbox_insert_on_conn(&mut transaction, project, OutboxNotification::Stack(stack)).await?;
        tracing::info!(stack_id = %stack, project, ended, "suspensions have expired");
    }
    transaction.commit().await.doing(doing)
}
