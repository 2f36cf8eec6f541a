//! Makes room ahead and behind: partitions of the days to come, and an end to what has had its time. Every replica runs
//! it; doing it twice does nothing.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::domain::retention::Retention;
use crate::store::StoreError;
use crate::store::content_retention::content_drop_old;
use crate::store::duties::duty_claim;
use crate::store::partitions::{partition_create, partition_drop_before};
use crate::store::status_counts::status_counts_tidy;

/// Waits for the timer only: days come slowly.
const EVERY: Duration = Duration::from_secs(600);
const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// Days that are made ahead: a week of failing would pass before an event fell into the default partition.
const AHEAD: i64 = 7;

pub async fn run(pool: PgPool, retention: Retention, stop: CancellationToken) {
    loop {
        if let Err(error) = once(&pool, retention, Timestamp::now()).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "partitions and retention wait for the next time");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Makes what will be needed first: it matters more than what is no longer needed.
pub async fn once(pool: &PgPool, retention: Retention, now: Timestamp) -> Result<(), StoreError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    for ahead in -1..=AHEAD {
        let day = today.saturating_add(ahead.days());
        if partition_create(pool, day).await? {
            tracing::info!(%day, "a partition of the events is made");
        }
    }
    let oldest = today.saturating_sub(i64::from(retention.event_days).days());
    let (partitions, rows) = partition_drop_before(pool, oldest).await?;
    if partitions > 0 || rows > 0 {
        tracing::info!(partitions, rows, before = %oldest, "old events are dropped");
    }
    if duty_claim(pool, "tidy", TIDY_EVERY).await? {
        let contents = content_drop_old(pool, retention.content_days, retention.content_versions).await?;
        let counts = status_counts_tidy(pool).await?;
        tracing::debug!(contents, counts, "tidied");
    }
    Ok(())
}
