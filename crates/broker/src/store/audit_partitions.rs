//! Monthly partitions of the audit log: created ahead of need, and dropped after the floor of each chain is recorded.
//!
//! A floor is an entry of the log itself: it has the number and the hash of the last link whose entry may be missing.

use brokkr_api::audit::AuditHead;
use jiff::civil::Date;
use sqlx::{AssertSqlSafe, PgPool};

use super::partitions::{NewPartition, create};
use super::{Doing as _, Fetch as _, Result, Run as _, checksum};
use crate::domain::audit::FLOOR;

const DROPPING: &str = "drop an audit partition";

fn name(month: Date) -> String {
    format!("audit_{:04}{:02}", month.year(), month.month())
}

/// Creates the partition of the month of this day, if it does not exist. Returns whether it was created.
pub async fn audit_partition_create(pool: &PgPool, day: Date) -> Result<bool> {
    let first = day.first_of_month();
    let partition = NewPartition {
        table: "audit",
        name: name(day),
        first,
        next: day.last_of_month().tomorrow().unwrap_or(first),
        lock: 1_112_690_260,
        append_only: Some("audit_append_only"),
        action: "create an audit partition",
    };
    create(pool, &partition).await
}

/// Returns the partitions of the months before the month of this day, oldest first.
pub async fn audit_partitions_before(pool: &PgPool, day: Date) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'audit'::regclass AND c.relname ~ '^audit_[0-9]{6}$' AND c.relname::text < $1 ORDER BY 1",
    )
    .bind(name(day))
    .all(pool, "list the partitions of the audit log")
    .await
}

/// Returns the number of entries of the partition; none if some are not in the chain.
pub async fn audit_partition_chained(pool: &PgPool, partition: &str) -> Result<Option<i64>> {
    // The name comes from the catalog and matches a pattern.
    let sql = AssertSqlSafe(format!(
        "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM audit_chain l WHERE l.audit_id = a.id))
         FROM {partition} a"
    ));
    let (all, unchained): (i64, i64) = sqlx::query_as(sql).one(pool, "find unchained audit entries").await?;
    Ok((unchained == 0).then_some(all))
}

/// The last link of a project with an entry in a partition.
#[derive(Clone, Debug)]
pub struct LastLink {
    pub head: AuditHead,
    pub audit_id: i64,
}

/// Returns the last link of each project that has entries in the partition.
pub async fn audit_partition_last_links(pool: &PgPool, partition: &str) -> Result<Vec<LastLink>> {
    let sql = AssertSqlSafe(format!(
        "SELECT DISTINCT ON (l.project) l.project, l.number, l.hash, l.audit_id
         FROM {partition} a JOIN audit_chain l ON l.audit_id = a.id
         ORDER BY l.project, l.number DESC"
    ));
    let rows: Vec<(String, i64, Vec<u8>, i64)> =
        sqlx::query_as(sql).all(pool, "read the last links of an audit partition").await?;
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

/// Drops a partition with exactly this many entries; otherwise some arrived after they were counted, and it stays.
/// Returns whether it was dropped.
pub async fn audit_partition_drop(pool: &PgPool, partition: &str, entries: i64) -> Result<bool> {
    let mut transaction = pool.begin().await.doing(DROPPING)?;
    sqlx::query("SELECT set_config('lock_timeout', '2s', true)").run(&mut *transaction, DROPPING).await?;
    // Blocks writers, but no readers: they lock the whole log first, and so does the drop.
    sqlx::query(AssertSqlSafe(format!("LOCK TABLE {partition} IN SHARE MODE")))
        .run(&mut *transaction, DROPPING)
        .await?;
    let now: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {partition}")))
        .one(&mut *transaction, DROPPING)
        .await?;
    if now != entries {
        return Ok(false);
    }
    sqlx::query(AssertSqlSafe(format!("DROP TABLE {partition}"))).run(&mut *transaction, DROPPING).await?;
    transaction.commit().await.doing(DROPPING)?;
    Ok(true)
}
