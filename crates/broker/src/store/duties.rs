//! Duties that one replica does for all, now and then. Doing one twice does no harm; that one does it is thrift.

use std::time::Duration;

use sqlx::PgPool;

use super::{Doing as _, StoreError};

/// Claims the duty if nobody did it within the time. Whoever claims it after a pause of several times that long begins
/// a new series.
pub async fn duty_claim(pool: &PgPool, name: &str, every: Duration) -> Result<bool, StoreError> {
    sqlx::query(
        "UPDATE duties SET since = CASE WHEN done_at < now() - make_interval(secs => $2 * 4) THEN now() ELSE since END,
                           done_at = now()
         WHERE name = $1 AND done_at < now() - make_interval(secs => $2)",
    )
    .bind(name)
    .bind(every.as_secs_f64())
    .execute(pool)
    .await
    .map(|done| done.rows_affected() == 1)
    .doing("claim a duty")
}
