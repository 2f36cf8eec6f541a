//! The outbox: notifications that say what changed, read by transaction id.
//!
//! Ids and transaction ids are both assigned before the commit, so a reader that continues at `id > last`
//! skips rows that commit late (measured: 7 to 32 % lost). The horizon, `pg_snapshot_xmin`, is the lowest
//! transaction that is still open: everything below it has ended and is visible. A reader that stops there
//! skips nothing. The price is that it lags behind open transactions; it never loses a row.

use std::collections::HashSet;
use std::time::Duration;

use brokkr_api::{AgentId, GrantId, HistoryMark, StackId, WindowId};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::{APPLICATION, Doing as _, Fetch as _, Result, Run as _};

/// Rows deleted at once.
const SLICE: u64 = 5000;

/// A reader that was away for long does not read all marks that were made meanwhile.
const MOST_MARKS: i64 = 4096;

/// What changed; the reader looks up the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboxNotification {
    Agent(AgentId),
    Stack(StackId),
    Grant(GrantId),
    Window(WindowId),
    /// The health rules of the installation.
    HealthRules,
    /// An upgrade of agents.
    AgentUpgrades,
}

impl OutboxNotification {
    /// Returns none for a kind that only a newer version knows.
    fn read(kind: &str, key: Uuid) -> Option<Self> {
        match kind {
            "agent" => Some(Self::Agent(AgentId(key))),
            "stack" => Some(Self::Stack(StackId(key))),
            "grant" => Some(Self::Grant(GrantId(key))),
            "window" => Some(Self::Window(WindowId(key))),
            "health_rules" => Some(Self::HealthRules),
            "agent_upgrade" => Some(Self::AgentUpgrades),
            _ => None,
        }
    }

    #[must_use]
    pub fn key(self) -> Uuid {
        match self {
            Self::Agent(id) => id.0,
            Self::Stack(id) => id.0,
            Self::Grant(id) => id.0,
            Self::Window(id) => id.0,
            Self::HealthRules | Self::AgentUpgrades => Uuid::nil(),
        }
    }
}

/// The snapshot of a reading transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxSnapshot {
    pub epoch: i64,
    /// Every transaction below this one has ended.
    pub horizon: u64,
    /// No transaction with this id or a higher one had begun.
    pub ceiling: u64,
    /// By the database's clock.
    pub now: Timestamp,
    /// Whether the database has the recent marks that the reader knows.
    pub has_marks: bool,
}

/// Inserts a notification, in the transaction of the change.
pub async fn outbox_insert_on_conn(
    conn: &mut PgConnection,
    project: &str,
    notification: OutboxNotification,
) -> Result<()> {
    let kind = match notification {
        OutboxNotification::Agent(_) => "agent",
        OutboxNotification::Stack(_) => "stack",
        OutboxNotification::Grant(_) => "grant",
        OutboxNotification::Window(_) => "window",
        OutboxNotification::HealthRules => "health_rules",
        OutboxNotification::AgentUpgrades => "agent_upgrade",
    };
    sqlx::query("INSERT INTO outbox (project, kind, key) VALUES ($1, $2, $3)")
        .bind(project)
        .bind(kind)
        .bind(notification.key())
        .run(conn, "write to the outbox")
        .await
}

/// Begins a read-only transaction with one consistent snapshot.
pub const READ_ONLY_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Returns the snapshot of the transaction, and the latest marks since those that the reader knows (`recent`).
pub async fn outbox_snapshot_on_conn(
    conn: &mut PgConnection,
    recent: &[HistoryMark],
) -> Result<(OutboxSnapshot, Vec<HistoryMark>)> {
    type Row = (i64, i64, i64, jiff_sqlx::Timestamp, Vec<i64>, bool);
    let known: Vec<i64> = recent.iter().map(|mark| mark.0.cast_signed()).collect();
    let (epoch, horizon, ceiling, now, marks, has_marks): Row = sqlx::query_as(
        "SELECT epoch,
                pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                now(),
                ARRAY(SELECT id FROM history_marks WHERE id >= $1 ORDER BY id DESC LIMIT $3),
                NOT EXISTS (SELECT FROM unnest($2::bigint[]) AS known (id)
                            WHERE NOT EXISTS (SELECT FROM history_marks m WHERE m.id = known.id))
         FROM installation",
    )
    .bind(known.iter().min())
    .bind(&known)
    .bind(MOST_MARKS)
    .one(conn, "read the snapshot")
    .await?;
    let marks: Vec<HistoryMark> = marks.into_iter().map(|id| HistoryMark(id.cast_unsigned())).collect();
    let snapshot = OutboxSnapshot {
        epoch,
        horizon: horizon.cast_unsigned(),
        ceiling: ceiling.cast_unsigned(),
        now: now.to_jiff(),
        has_marks,
    };
    Ok((snapshot, marks))
}

/// Exports the snapshot of the transaction, so that another one can use it.
pub async fn outbox_export_on_conn(conn: &mut PgConnection) -> Result<String> {
    sqlx::query_scalar("SELECT pg_export_snapshot()").one(conn, "export the snapshot").await
}

/// Makes a transaction that has just begun use the snapshot of another one.
pub async fn outbox_import_on_conn(conn: &mut PgConnection, snapshot: &str) -> Result<()> {
    // SET takes no parameters. The server generates the name: digits and dashes.
    let statement = AssertSqlSafe(format!("SET TRANSACTION SNAPSHOT '{snapshot}'"));
    sqlx::query(statement).run(conn, "import the snapshot").await
}

/// Returns the current snapshot.
pub async fn outbox_snapshot(pool: &PgPool) -> Result<OutboxSnapshot> {
    let mut conn = pool.acquire().await.doing("read the snapshot")?;
    outbox_snapshot_on_conn(&mut conn, &[]).await.map(|(snapshot, _)| snapshot)
}

/// Returns the notifications of all transactions from `cursor` up to, but excluding, `horizon`, each once.
pub async fn outbox_read_on_conn(
    conn: &mut PgConnection,
    cursor: u64,
    horizon: u64,
) -> Result<Vec<OutboxNotification>> {
    let rows: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT kind, key FROM outbox
         WHERE xid >= $1::bigint::text::xid8 AND xid < $2::bigint::text::xid8
         ORDER BY xid, id",
    )
    .bind(cursor.cast_signed())
    .bind(horizon.cast_signed())
    .all(conn, "read the outbox")
    .await?;
    let mut seen = HashSet::new();
    let notifications = rows.into_iter().filter_map(|(kind, key)| OutboxNotification::read(&kind, key));
    Ok(notifications.filter(|notification| seen.insert(*notification)).collect())
}

/// Returns the visible notifications of transactions at or above `horizon`. The index may or may not contain
/// the changes that they announce.
pub async fn outbox_above_on_conn(
    conn: &mut PgConnection,
    horizon: u64,
) -> Result<HashSet<OutboxNotification>> {
    let rows: Vec<(String, Uuid)> =
        sqlx::query_as("SELECT kind, key FROM outbox WHERE xid >= $1::bigint::text::xid8")
            .bind(horizon.cast_signed())
            .all(conn, "read the outbox above the horizon")
            .await?;
    Ok(rows.into_iter().filter_map(|(kind, key)| OutboxNotification::read(&kind, key)).collect())
}

/// Returns the highest transaction at or above `horizon` that has a visible notification. With `keys`, only
/// notifications of these keys count; with `grants`, those of any rule of the installation count as well.
pub async fn outbox_highest_on_conn(
    conn: &mut PgConnection,
    horizon: u64,
    keys: Option<&[Uuid]>,
    grants: bool,
) -> Result<Option<u64>> {
    sqlx::query_scalar(
        "SELECT xid::text::bigint FROM outbox
         WHERE xid >= $1::bigint::text::xid8 AND ($2::uuid[] IS NULL OR key = ANY($2) OR ($3 AND kind IN ('grant', 'window', 'health_rules', 'agent_upgrade')))
         ORDER BY xid DESC LIMIT 1",
    )
    .bind(horizon.cast_signed())
    .bind(keys)
    .bind(grants)
    .optional(conn, "read the outbox above the horizon")
    .await.map(|highest: Option<i64>| highest.map(i64::cast_unsigned))
}

/// Returns the id of the caller's transaction. A reader with a horizon above it has seen all of it.
pub async fn outbox_transaction_id_on_conn(conn: &mut PgConnection) -> Result<u64> {
    sqlx::query_scalar("SELECT pg_current_xact_id()::text::bigint")
        .one(conn, "read the transaction id")
        .await
        .map(i64::cast_unsigned)
}

/// Deletes the rows of transactions below `horizon`, in small batches with short locks.
pub async fn outbox_delete_below(pool: &PgPool, horizon: u64) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let slice = sqlx::query(
            "DELETE FROM outbox WHERE id = ANY(ARRAY(
                SELECT id FROM outbox WHERE xid < $1::bigint::text::xid8 ORDER BY xid, id LIMIT $2))",
        )
        .bind(horizon.cast_signed())
        .bind(SLICE.cast_signed())
        .affected(pool, "delete old outbox rows")
        .await?;
        deleted += slice;
        if slice < SLICE {
            return Ok(deleted);
        }
    }
}

/// Terminates database sessions of the broker that wait for the rest of a message in the middle of a
/// transaction; returns their number.
///
/// Such a session is left when a network goes silent between two packets of a request. It neither runs a
/// statement nor is idle, so no timeout of the server ends it, and its transaction holds back the horizon
/// until TCP gives up. The packets of a request normally arrive at once: no other session waits for seconds
/// in this way.
pub async fn outbox_terminate_abandoned(pool: &PgPool, silent: Duration) -> Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = $1 AND usename = current_user AND datname = current_database()
           AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
           AND state = 'active' AND wait_event = 'ClientRead'
           AND state_change < clock_timestamp() - make_interval(secs => $2)",
    )
    .bind(APPLICATION)
    .bind(silent.as_secs_f64())
    .one(pool, "terminate abandoned sessions")
    .await
}
