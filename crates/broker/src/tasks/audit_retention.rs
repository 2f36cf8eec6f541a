//! Creates the partitions of the audit log ahead of need, and drops those that are older than its retention.
//!
//! A partition is dropped only after each chain has a floor: an entry of the chain with the number and hash of the last
//! link that loses its entry. So `verify` can tell retention from a prefix that someone deleted.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use sqlx::PgPool;

use super::audit_chain::floor;
use crate::domain::audit::AuditRecord;
use crate::domain::retention::Retention;
use crate::store::StoreError;
use crate::store::audit::audit_insert;
use crate::store::audit_partitions::{
    audit_floor_is_recorded, audit_partition_chained, audit_partition_create, audit_partition_drop,
    audit_partition_last_links, audit_partitions_before,
};

/// Months created ahead: this may fail for two months before an entry falls into the default partition.
const MONTHS_AHEAD: i64 = 2;
/// Entries written at once.
const SLICE: usize = 1000;

/// Creates the partitions of the last month, of this one and of those ahead. Every replica does it.
pub async fn create_ahead(pool: &PgPool, now: Timestamp) -> Result<(), StoreError> {
    let this = now.to_zoned(TimeZone::UTC).date().first_of_month();
    for ahead in -1..=MONTHS_AHEAD {
        let month = this.saturating_add(ahead.months());
        if audit_partition_create(pool, month).await? {
            tracing::info!(%month, "created an audit partition");
        }
    }
    Ok(())
}

/// Drops the partitions of months that ended before the retention, oldest first. Returns how many.
///
/// The first run on a partition only records the floors. It is dropped by a later run, when they are in the chain.
pub async fn drop_old(pool: &PgPool, retention: Retention, now: Timestamp) -> Result<u64, StoreError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let oldest = today.saturating_sub(i64::from(retention.audit_days).days());
    let mut dropped = 0;
    for month in audit_partitions_before(pool, oldest).await? {
        // If it cannot be dropped, later ones wait, too: only a prefix may be missing.
        let Some(entries) = below_floors(pool, month).await? else { break };
        if !audit_partition_drop(pool, month, entries).await? {
            break;
        }
        tracing::info!(%month, before = %oldest, "dropped old audit entries");
        dropped += 1;
    }
    Ok(dropped)
}

/// Returns the number of entries of the month if every chain has a floor at or above its own; otherwise records the
/// floors that are missing.
async fn below_floors(pool: &PgPool, month: Date) -> Result<Option<i64>, StoreError> {
    let Some(entries) = audit_partition_chained(pool, month).await? else {
        tracing::warn!(%month, "not dropping an audit partition: it has entries that are not in the chain");
        return Ok(None);
    };
    let (mut complete, mut missing) = (true, Vec::new());
    for last in audit_partition_last_links(pool, month).await? {
        let known = floor(pool, &last.head.project).await?;
        if known.is_some_and(|known| known.number >= last.head.number) {
            continue;
        }
        complete = false;
        if !audit_floor_is_recorded(pool, &last.head).await? {
            missing.push(AuditRecord::floor(&last.head, last.audit_id));
        }
    }
    for slice in missing.chunks(SLICE) {
        audit_insert(pool, slice).await?;
    }
    Ok(complete.then_some(entries))
}
