//! Creates partitions of events and audit entries ahead, drops old ones, and deletes old content. Every replica runs it,
//! and repeating it does nothing; audit entries and content are deleted by one replica, once an hour.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::audit_retention;
use crate::domain::retention::Retention;
use crate::store::StoreError;
use crate::store::content_retention::content_drop_old;
use crate::store::holds::holds_delete_ended;
use crate::store::partitions::{events_delete_before, partition_create, partition_drop, partitions_before};
use crate::store::status_counts::status_counts_tidy;
use crate::store::task_claims::task_claim;

/// Waits for: this timer.
const EVERY: Duration = Duration::from_secs(600);
const DELETE_EVERY: Duration = Duration::from_secs(3600);
/// Days created ahead: this task may fail for a week before an event falls into the default partition.
const DAYS_AHEAD: i64 = 7;

pub async fn run(pool: PgPool, retention: Retention, stop: CancellationToken) {
    loop {
        once(&pool, retention, Timestamp::now()).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Runs once. Creates partitions before it deletes anything, because creating matters more. A step that fails does not stop
/// the others: one bad partition must not end all retention.
pub async fn once(pool: &PgPool, retention: Retention, now: Timestamp) {
    let today = now.to_zoned(TimeZone::UTC).date();
    for ahead in -1..=DAYS_AHEAD {
        let day = today.saturating_add(ahead.days());
        if logged(partition_create(pool, day).await, "create an events partition").unwrap_or_default() {
            tracing::info!(%day, "created an events partition");
        }
    }
    logged(audit_retention::create_ahead(pool, now).await, "create the audit partitions");
    let oldest = today.saturating_sub(i64::from(retention.event_days).days());
    let partitions = logged(partitions_before(pool, oldest).await, "list old events partitions");
    let mut dropped = 0;
    for day in partitions.unwrap_or_default() {
        dropped += usize::from(logged(partition_drop(pool, day).await, "drop an events partition").is_some());
    }
    let rows = logged(events_delete_before(pool, oldest).await, "delete old events").unwrap_or_default();
    if dropped > 0 || rows > 0 {
        tracing::info!(partitions = dropped, rows, before = %oldest, "dropped old events");
    }
    if logged(task_claim(pool, "retention", DELETE_EVERY).await, "claim the retention task") != Some(true) {
        return;
    }
    logged(audit_retention::drop_old(pool, retention, now).await, "drop old audit entries");
    let Retention { content_days, content_versions, .. } = retention;
    let versions = logged(content_drop_old(pool, content_days, content_versions).await, "drop old content");
    let holds = logged(holds_delete_ended(pool).await, "delete claims that ended long ago");
    let counts = logged(status_counts_tidy(pool).await, "delete empty status counts");
    tracing::debug!(versions, holds, empty_status_counts = counts, "deleted old rows and content");
}

/// Logs a failure.
fn logged<T>(result: Result<T, StoreError>, action: &str) -> Option<T> {
    result
        .inspect_err(|error| {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, "failed to {action}; retrying later");
        })
        .ok()
}
