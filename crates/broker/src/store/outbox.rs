//! The outbox: doorbells that say what changed, read by transaction id.
//!
//! Ids and transaction ids are both handed out before commits, so a cursor `id > last` passes over rows
//! that commit late (measured: 7 to 32 % lost). `pg_snapshot_xmin` is the lowest transaction that is
//! still open: everything below it has ended, and what it wrote is visible. A reader that goes up to there,
//! and no further, passes over nothing. The price is lag behind open transactions, never loss.

use std::collections::HashSet;
use std::time::Duration;

use brokkr_api::{AgentId, GrantId, StackId};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::{APPLICATION, Doing as _, StoreError};

/// Rows that are deleted at once.
const SLICE: u64 = 5000;

/// What changed; the reader looks up how it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doorbell {
    Agent(AgentId),
    Stack(StackId),
    Grant(GrantId),
}

impl Doorbell {
    /// One that a newer version rings is not for this one.
    fn read(kind: &str, key: Uuid) -> Option<Self> {
        match kind {
            "agent" => Some(Self::Agent(AgentId(key))),
            "stack" => Some(Self::Stack(StackId(key))),
            "grant" => Some(Self::Grant(GrantId(key))),
            _ => None,
        }
    }

    #[must_use]
    pub fn key(self) -> Uuid {
        match self {
            Self::Agent(id) => id.0,
            Self::Stack(id) => id.0,
            Self::Grant(id) => id.0,
        }
    }
}

/// What one transaction of a reader can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub epoch: i64,
    /// Every transaction below this one has ended.
    pub horizon: u64,
    /// No transaction from this one on had begun.
    pub ceiling: u64,
    /// By the database's clock.
    pub now: Timestamp,
}

/// Rings inside the transaction that changes the thing.
pub async fn outbox_ring_on_conn(
    connection: &mut PgConnection,
    project: &str,
    bell: Doorbell,
) -> Result<(), StoreError> {
    let kind = match bell {
        Doorbell::Agent(_) => "agent",
        Doorbell::Stack(_) => "stack",
        Doorbell::Grant(_) => "grant",
    };
    sqlx::query("INSERT INTO outbox (project, kind, key) VALUES ($1, $2, $3)")
        .bind(project)
        .bind(kind)
        .bind(bell.key())
        .execute(connection)
        .await
        .map(|_| ())
        .doing("write to the outbox")
}

/// Begins a transaction that is one consistent, read-only picture.
pub const FROZEN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What the frozen transaction sees.
pub async fn outbox_snapshot_on_conn(connection: &mut PgConnection) -> Result<Snapshot, StoreError> {
    let (epoch, horizon, ceiling, now): (i64, i64, i64, jiff_sqlx::Timestamp) = sqlx::query_as(
        "SELECT epoch,
                pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                now()
         FROM installation",
    )
    .fetch_one(connection)
    .await
    .doing("read the snapshot")?;
    Ok(Snapshot {
        epoch,
        horizon: horizon.cast_unsigned(),
        ceiling: ceiling.cast_unsigned(),
        now: now.to_jiff(),
    })
}

/// Gives out the snapshot of the frozen transaction, so that another can begin with the same.
pub async fn outbox_export_on_conn(connection: &mut PgConnection) -> Result<String, StoreError> {
    sqlx::query_scalar("SELECT pg_export_snapshot()").fetch_one(connection).await.doing("share the snapshot")
}

/// Makes a frozen transaction that has just begun see exactly what another one sees.
pub async fn outbox_import_on_conn(connection: &mut PgConnection, snapshot: &str) -> Result<(), StoreError> {
    // A SET takes no parameters. The name is the server's own: digits and dashes.
    let statement = AssertSqlSafe(format!("SET TRANSACTION SNAPSHOT '{snapshot}'"));
    sqlx::query(statement).execute(connection).await.map(|_| ()).doing("take over the snapshot")
}

/// What can be seen now.
pub async fn outbox_snapshot(pool: &PgPool) -> Result<Snapshot, StoreError> {
    let mut connection = pool.acquire().await.doing("read the snapshot")?;
    outbox_snapshot_on_conn(&mut connection).await
}

/// The doorbells of all transactions from `cursor` up to, and without, `horizon`, each once.
pub async fn outbox_read_on_conn(
    connection: &mut PgConnection,
    cursor: u64,
    horizon: u64,
) -> Result<Vec<Doorbell>, StoreError> {
    let rows: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT kind, key FROM outbox
         WHERE xid >= $1::bigint::text::xid8 AND xid < $2::bigint::text::xid8
         ORDER BY xid, id",
    )
    .bind(cursor.cast_signed())
    .bind(horizon.cast_signed())
    .fetch_all(connection)
    .await
    .doing("read the outbox")?;
    let mut seen = HashSet::new();
    let bells = rows.into_iter().filter_map(|(kind, key)| Doorbell::read(&kind, key));
    Ok(bells.filter(|bell| seen.insert(*bell)).collect())
}

/// Doorbells from `horizon` on that are visible already. What they are about may or may not show in a picture.
pub async fn outbox_above_on_conn(
    connection: &mut PgConnection,
    horizon: u64,
) -> Result<HashSet<Doorbell>, StoreError> {
    let rows: Vec<(String, Uuid)> =
        sqlx::query_as("SELECT kind, key FROM outbox WHERE xid >= $1::bigint::text::xid8")
            .bind(horizon.cast_signed())
            .fetch_all(connection)
            .await
            .doing("read the outbox above the horizon")?;
    Ok(rows.into_iter().filter_map(|(kind, key)| Doorbell::read(&kind, key)).collect())
}

/// The highest transaction from `horizon` on that rang and is visible already; with keys, only of those, and of
/// grants if they were all read.
pub async fn outbox_highest_on_conn(
    connection: &mut PgConnection,
    horizon: u64,
    keys: Option<&[Uuid]>,
    grants: bool,
) -> Result<Option<u64>, StoreError> {
    sqlx::query_scalar(
        "SELECT xid::text::bigint FROM outbox
         WHERE xid >= $1::bigint::text::xid8 AND ($2::uuid[] IS NULL OR key = ANY($2) OR ($3 AND kind = 'grant'))
         ORDER BY xid DESC LIMIT 1",
    )
    .bind(horizon.cast_signed())
    .bind(keys)
    .bind(grants)
    .fetch_optional(connection)
    .await
    .map(|highest: Option<i64>| highest.map(i64::cast_unsigned))
    .doing("read the outbox above the horizon")
}

/// The id of the caller's transaction. A reader whose horizon is above it has seen all of it.
pub async fn outbox_transaction_on_conn(connection: &mut PgConnection) -> Result<u64, StoreError> {
    sqlx::query_scalar("SELECT pg_current_xact_id()::text::bigint")
        .fetch_one(connection)
        .await
        .map(i64::cast_unsigned)
        .doing("read the transaction id")
}

/// Deletes rows below the horizon, in slices whose locks are short.
pub async fn outbox_delete_below(pool: &PgPool, horizon: u64) -> Result<u64, StoreError> {
    let mut deleted = 0;
    loop {
        let slice = sqlx::query(
            "DELETE FROM outbox WHERE id = ANY(ARRAY(
                SELECT id FROM outbox WHERE xid < $1::bigint::text::xid8 ORDER BY xid, id LIMIT $2))",
        )
        .bind(horizon.cast_signed())
        .bind(SLICE.cast_signed())
        .execute(pool)
        .await
        .doing("delete old outbox rows")?
        .rows_affected();
        deleted += slice;
        if slice < SLICE {
            return Ok(deleted);
        }
    }
}

/// Ends sessions of brokers that wait for the rest of a request in the middle of a transaction. Answers how many they were.
///
/// A request that is cut in two, by a network that goes silent between its messages, leaves such a session: it neither runs a
/// statement nor is it idle, so no timeout of the server ends it, and its transaction holds the horizon back for as long as
/// the server hopes for the connection. Whole requests come at once: nobody else waits like that for seconds.
pub async fn outbox_end_cut_off(pool: &PgPool, silent: Duration) -> Result<i64, StoreError> {
    sqlx::query_scalar(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = $1 AND usename = current_user AND datname = current_database()
           AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
           AND state = 'active' AND wait_event = 'ClientRead'
           AND state_change < clock_timestamp() - make_interval(secs => $2)",
    )
    .bind(APPLICATION)
    .bind(silent.as_secs_f64())
    .fetch_one(pool)
    .await
    .doing("end sessions that were cut off")
}
