//! Daily partitions of the events: created ahead of need, and dropped by retention.
//!
//! An event belongs to the partition of its own time, so that a copy that arrives late conflicts with the
//! first one. Clocks of agents may be wrong: an event of a day without a partition goes to the default
//! partition. No event is refused for its time, and none is lost: when a partition is created, its rows move
//! there from the default partition. Rows that stay in the default partition are kept as long as other
//! events, but counted from when they were recorded.

use jiff::civil::Date;
use sqlx::{AssertSqlSafe, Connection as _, PgPool};

use super::{Doing as _, Fetch as _, Result, Run as _};

/// Rows deleted at once.
const SLICE: i64 = 5000;

fn name(day: Date) -> String {
    format!("events_{:04}{:02}{:02}", day.year(), day.month(), day.day())
}

/// A partition of a table with a default partition. All names are those of the schema, or made of dates.
pub(super) struct NewPartition<'a> {
    pub table: &'a str,
    pub name: String,
    /// Up to, but excluding, `next`.
    pub first: Date,
    pub next: Date,
    /// The advisory lock that serializes the creation of partitions of this table.
    pub lock: i64,
    /// A trigger that refuses deletions. It is disabled only in this transaction, which no other session can write in.
    pub append_only: Option<&'a str>,
    pub action: &'static str,
}

/// Creates a partition, if it does not exist. Rows that were written before move there unchanged. Returns whether it was
/// created.
pub(super) async fn create(pool: &PgPool, partition: &NewPartition<'_>) -> Result<bool> {
    let NewPartition { table, name, first, next, lock, append_only, action } = partition;
    let mut conn = pool.acquire().await.doing(action)?;
    let mut transaction = conn.begin().await.doing(action)?;
    // Writers must not wait long for this transaction; if it gives up, it is retried soon.
    sqlx::query("SELECT set_config('lock_timeout', '2s', true), pg_advisory_xact_lock($1)")
        .bind(lock)
        .run(&mut *transaction, action)
        .await?;
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(name)
        .one(&mut *transaction, action)
        .await?;
    if exists {
        return Ok(false);
    }
    let range = format!("at >= '{first} 00:00:00+00' AND at < '{next} 00:00:00+00'");
    let trigger =
        |state| append_only.map(|trigger| format!("ALTER TABLE {table}_default {state} TRIGGER {trigger}"));
    // ATTACH does not block writes to the other partitions; CREATE … PARTITION OF would.
    let steps = [
        Some(format!("LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE")),
        Some(format!("CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")),
        trigger("DISABLE"),
        Some(format!(
            "WITH moved AS (DELETE FROM {table}_default WHERE {range} RETURNING *) INSERT INTO {name} SELECT * FROM moved"
        )),
        trigger("ENABLE"),
        Some(format!(
            "ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{first} 00:00:00+00') TO ('{next} 00:00:00+00')"
        )),
    ];
    for step in steps.into_iter().flatten() {
        sqlx::query(AssertSqlSafe(step)).run(&mut *transaction, action).await?;
    }
    transaction.commit().await.doing(action)?;
    Ok(true)
}

/// Creates the partition of a day, if it does not exist. Returns whether it was created.
pub async fn partition_create(pool: &PgPool, day: Date) -> Result<bool> {
    let next = day.tomorrow().unwrap_or(day);
    let (name, action) = (name(day), "create an events partition");
    let partition = NewPartition {
        table: "events",
        name,
        first: day,
        next,
        lock: 1_112_690_259,
        append_only: None,
        action,
    };
    create(pool, &partition).await
}

/// Returns the partitions of days before this one, oldest first.
pub async fn partitions_before(pool: &PgPool, day: Date) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{8}$' AND c.relname::text < $1 ORDER BY 1",
    )
    .bind(name(day))
    .all(pool, "list the partitions of the events")
    .await
}

/// Drops a partition.
pub async fn partition_drop(pool: &PgPool, name: &str) -> Result<()> {
    let mut transaction = pool.begin().await.doing("drop an events partition")?;
    sqlx::query("SELECT set_config('lock_timeout', '2s', true)")
        .run(&mut *transaction, "drop an events partition")
        .await?;
    sqlx::query(AssertSqlSafe(format!("DROP TABLE IF EXISTS {name}")))
        .run(&mut *transaction, "drop an events partition")
        .await?;
    transaction.commit().await.doing("drop an events partition")
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
