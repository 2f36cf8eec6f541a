//! Periodic tasks that one replica runs for all. A claim only saves work: it does no harm if two replicas
//! run the same task.

use std::time::Duration;

use sqlx::PgPool;

use super::{Result, Run as _};

/// Claims the task if no replica claimed it within `every`. The column `since` says when the current series
/// of claims began: a claim after a pause of four times `every` begins a new series.
pub async fn task_claim(pool: &PgPool, name: &str, every: Duration) -> Result<bool> {
    sqlx::query(
        "UPDATE task_claims SET since = CASE WHEN claimed_at < now() - make_interval(secs => $2 * 4) THEN now() ELSE since END,
                           claimed_at = now()
         WHERE name = $1 AND claimed_at < now() - make_interval(secs => $2)",
    )
    .bind(name)
    .bind(every.as_secs_f64())
    .affected(pool, "claim a periodic task")
    .await.map(|rows| rows == 1)
}
