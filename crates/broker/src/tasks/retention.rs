//! Creates partitions of the days ahead, drops old ones, and deletes old content. Every replica runs it, and
//! repeating it does nothing; content is deleted by one replica, once an hour.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::domain::retention::Retention;
use crate::store::StoreError;
use crate::store::content_retention::content_drop_old;
use crate::store::partitions::{partition_create, partition_drop_before};
use crate::store::status_counts::status_counts_tidy;
use crate::store::task_claims::task_claim;

/// Waits for: this timer.
const EVERY: Duration = Duration::from_secs(600);
const DELETE_EVERY: Duration = Duration::from_secs(3600);
/// Days created ahead: this task may fail for a week before an event falls into the default partition.
const DAYS_AHEAD: i64 = 7;

pub async fn run(pool: PgPool, retention: Retention, stop: CancellationToken) {
    loop {
        if let Err(error) = once(&pool, retention, Timestamp::now()).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                "failed to create or drop partitions of events, or to delete old content; retrying later"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Runs once. Creates partitions before it deletes anything, because creating matters more.
pub async fn once(pool: &PgPool, retention: Retention, now: Timestamp) -> Result<(), StoreError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    for ahead in -1..=DAYS_AHEAD {
        let day = today.saturating_add(ahead.days());
        if partition_create(pool, day).await? {
            tracing::info!(%day, "created an events partition");
        }
    }
    let oldest = today.saturating_sub(i64::from(retention.event_days).days());
    let (partitions, rows) = partition_drop_before(pool, oldest).await?;
    if partitions > 0 || rows > 0 {
        tracing::info!(partitions, rows, before = %oldest, "dropped old events");
    }
    if task_claim(pool, "retention", DELETE_EVERY).await? {
        let versions = content_drop_old(pool, retention.content_days, retention.content_versions).await?;
        let empty_status_counts = status_counts_tidy(pool).await?;
        tracing::debug!(versions, empty_status_counts, "deleted old content and empty status counts");
    }
    Ok(())
}
