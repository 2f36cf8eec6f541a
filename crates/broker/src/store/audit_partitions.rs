//! Monthly partitions of the audit log: created ahead of need, and dropped after the floor of each chain is recorded.
//!
//! A floor is an entry of the log itself: it has the number and the hash of the last link whose entry may be missing.

use brokkr_api::audit::AuditHead;
use jiff::civil::Date;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgPool;

use super::partitions::{before, create};
use super::{Fetch as _, Result, checksum};
use crate::domain::audit::FLOOR;

const AUDIT: &str = "audit";

/// Creates the partition of the month of this day, if it does not exist. Returns whether it was created.
pub async fn audit_partition_create(pool: &PgPool, day: Date) -> Result<bool> {
    create(pool, AUDIT, day, "create an audit partition").await
}

/// Returns the months before the month of this day that have a partition, oldest first.
pub async fn audit_partitions_before(pool: &PgPool, day: Date) -> Result<Vec<Date>> {
    before(pool, AUDIT, day.first_of_month(), "list the partitions of the audit log").await
}

/// Returns the number of entries of the month; none if some are not in the chain.
pub async fn audit_partition_chained(pool: &PgPool, month: Date) -> Result<Option<i64>> {
    let (all, unchained): (i64, i64) = sqlx::query_as(
        "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM audit_chain l WHERE l.audit_id = a.id))
         FROM audit a WHERE a.at >= $1::timestamp AT TIME ZONE 'UTC'
                        AND a.at < ($1::timestamp + interval '1 month') AT TIME ZONE 'UTC'",
    )
    .bind(month.to_sqlx())
    .one(pool, "find unchained audit entries")
    .await?;
    Ok((unchained == 0).then_some(all))
}

/// The last link of a project with an entry in a partition.
#[derive(Clone, Debug)]
pub struct LastLink {
    pub head: AuditHead,
    pub audit_id: i64,
}

/// Returns the last link of each project that has entries in the month.
pub async fn audit_partition_last_links(pool: &PgPool, month: Date) -> Result<Vec<LastLink>> {
    let rows: Vec<(String, i64, Vec<u8>, i64)> = sqlx::query_as(
        "SELECT DISTINCT ON (l.project) l.project, l.number, l.hash, l.audit_id
         FROM audit a JOIN audit_chain l ON l.audit_id = a.id
         WHERE a.at >= $1::timestamp AT TIME ZONE 'UTC'
           AND a.at < ($1::timestamp + interval '1 month') AT TIME ZONE 'UTC'
         ORDER BY l.project, l.number DESC",
    )
    .bind(month.to_sqlx())
    .all(pool, "read the last links of an audit partition")
    .await?;
    let read = |(project, number, hash, audit_id): (String, i64, Vec<u8>, i64)| LastLink {
        head: AuditHead { project, number, hash: checksum(&hash) },
        audit_id,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Returns whether a floor at this link is recorded already, in the chain or not yet.
pub async fn audit_floor_is_recorded(pool: &PgPool, floor: &AuditHead) -> Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM audit WHERE project = $1 AND route = $2 AND path = $3)")
        .bind(&floor.project)
        .bind(FLOOR)
        .bind(floor.number.to_string())
        .one(pool, "read the floor of an audit chain")
        .await
}

/// Returns the link of the newest entry of the project that records a floor.
pub async fn audit_floor_link(pool: &PgPool, project: &str) -> Result<Option<i64>> {
    sqlx::query_scalar(
        "SELECT l.number FROM audit a JOIN audit_chain l ON l.audit_id = a.id AND l.project = a.project
         WHERE a.project = $1 AND a.route = $2 ORDER BY a.id DESC LIMIT 1",
    )
    .bind(project)
    .bind(FLOOR)
    .optional(pool, "read the floor of an audit chain")
    .await
}

/// Drops the partition of a month with exactly this many entries; otherwise some arrived after they were counted, and it
/// stays. Returns whether it was dropped.
pub async fn audit_partition_drop(pool: &PgPool, month: Date, entries: i64) -> Result<bool> {
    sqlx::query_scalar("SELECT partition_drop($1, $2, $3)")
        .bind(AUDIT)
        .bind(month.to_sqlx())
        .bind(entries)
        .one(pool, "drop an audit partition")
        .await
}
