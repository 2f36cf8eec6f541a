//! Daily partitions of the events: created ahead of need, and dropped by retention.
//!
//! An event belongs to the partition of its own time, so that a copy that arrives late conflicts with the
//! first one. Clocks of agents may be wrong: an event of a day without a partition goes to the default
//! partition. No event is refused for its time, and none is lost: when a partition is created, its rows move
//! there from the default partition. Rows that stay in the default partition are kept as long as other
//! events, but counted from when they were recorded.

use jiff::civil::Date;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgPool;

use super::{Fetch as _, Result, Run as _};

/// Rows deleted at once.
const SLICE: i64 = 5000;
const EVENTS: &str = "events";

/// Creates the partition of a table for a day, if it does not exist. Returns whether it was created.
///
/// Functions of the schema create and drop partitions, so that the role of the broker does not have to own the tables.
pub(super) async fn create(pool: &PgPool, table: &str, day: Date, action: &'static str) -> Result<bool> {
    sqlx::query_scalar("SELECT partition_create($1, $2)")
        .bind(table)
        .bind(day.to_sqlx())
        .one(pool, action)
        .await
}

/// Returns the first days of the partitions of a table that begin before this day, oldest first.
pub(super) async fn before(pool: &PgPool, table: &str, day: Date, action: &'static str) -> Result<Vec<Date>> {
    let days: Vec<jiff_sqlx::Date> = sqlx::query_scalar(
        "SELECT day FROM (SELECT to_date(substring(c.relname, '_([0-9]{6,8})$'), 'YYYYMMDD') AS day
                          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                          WHERE i.inhparent = $1::regclass) partitions
         WHERE day < $2 ORDER BY day",
    )
    .bind(table)
    .bind(day.to_sqlx())
    .all(pool, action)
    .await?;
    Ok(days.into_iter().map(jiff_sqlx::Date::to_jiff).collect())
}

/// Creates the partition of a day, if it does not exist. Returns whether it was created.
pub async fn partition_create(pool: &PgPool, day: Date) -> Result<bool> {
    create(pool, EVENTS, day, "create an events partition").await
}

/// Returns the days before this one that have a partition, oldest first.
pub async fn partitions_before(pool: &PgPool, day: Date) -> Result<Vec<Date>> {
    before(pool, EVENTS, day, "list the partitions of the events").await
}

/// Drops the partition of a day.
pub async fn partition_drop(pool: &PgPool, day: Date) -> Result<()> {
    sqlx::query("SELECT partition_drop($1, $2)")
        .bind(EVENTS)
        .bind(day.to_sqlx())
        .run(pool, "drop an events partition")
        .await
}

/// Deletes the rows of the default partition, of `agent_events` and of `clamped_reports` that were recorded before this day. Returns how many.
pub async fn events_delete_before(pool: &PgPool, day: Date) -> Result<u64> {
    let mut rows = 0;
    for sql in [
        "DELETE FROM events_default WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM events_default WHERE recorded_at < ($1 || ' 00:00:00+00')::timestamptz LIMIT $2))",
        "DELETE FROM agent_events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM agent_events WHERE at < ($1 || ' 00:00:00+00')::timestamptz LIMIT $2))",
        "DELETE FROM clamped_reports WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM clamped_reports WHERE recorded_at < ($1 || ' 00:00:00+00')::timestamptz LIMIT $2))",
    ] {
        loop {
            let slice = sqlx::query(sql).bind(day.to_string()).bind(SLICE);
            let slice = slice.affected(pool, "delete old events").await?;
            rows += slice;
            if slice < SLICE.unsigned_abs() {
                break;
            }
        }
    }
    Ok(rows)
}
