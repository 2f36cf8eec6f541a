//! The installation: its id, its epoch, and whether it is on hold.

use brokkr_api::rollouts::StopReason;
use brokkr_api::system::{Hold, HoldCause, RaisedEpoch};
use brokkr_api::{HistoryMark, InstallationId, Position, SequenceId};
use jiff::Timestamp;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use super::agent_upgrades::agent_upgrades_abort_all_on_conn;
use super::audit::audit_cursor_restart_on_conn;
use super::rollouts::rollouts_abort_all_on_conn;
use super::{Fetch as _, Result, Run as _};
use crate::domain::hold::{DatabaseIds, Raised};

pub async fn installation_fetch(pool: &PgPool) -> Result<InstallationId> {
    sqlx::query_scalar("SELECT id FROM installation")
        .one(pool, "read the installation")
        .await
        .map(InstallationId)
}

/// Returns the key that proves which positions this installation issued.
pub async fn installation_position_key(pool: &PgPool) -> Result<Vec<u8>> {
    sqlx::query_scalar("SELECT position_key FROM installation").one(pool, "read the key of positions").await
}

/// The state of the installation, in one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationState {
    pub epoch: i64,
    /// No transaction with this id or a higher one had begun when the snapshot was taken.
    pub ceiling: u64,
    pub hold: Option<Hold>,
    /// How often all agents were asked to report what they hold.
    pub asked: i64,
}

impl InstallationState {
    /// Returns whether this database cannot have issued the position.
    #[must_use]
    pub fn is_below(&self, seen: Position) -> bool {
        seen > self.position()
    }

    /// Returns the highest position that this database can have issued.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, horizon: self.ceiling }
    }
}

type HoldColumns = (Option<jiff_sqlx::Timestamp>, Option<Json<HoldCause>>);
type StateRow = (i64, i64, Option<jiff_sqlx::Timestamp>, Option<Json<HoldCause>>, i64);

fn state_of((epoch, ceiling, since, cause, asked): StateRow) -> InstallationState {
    InstallationState { epoch, ceiling: ceiling.cast_unsigned(), hold: hold_of((since, cause)), asked }
}

fn hold_of((since, cause): HoldColumns) -> Option<Hold> {
    since.zip(cause).map(|(since, Json(cause))| Hold::new(since.to_jiff(), cause))
}

pub async fn installation_state(pool: &PgPool) -> Result<InstallationState> {
    let row: StateRow = sqlx::query_as(
        "SELECT epoch, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, held_since, held_cause, holds_request
         FROM installation",
    )
    .one(pool, "read the state of the installation")
    .await?;
    Ok(state_of(row))
}

/// Puts the installation on hold if this database cannot have issued the position, and asks all agents to report what they
/// hold. Returns the hold in force, if any.
///
/// The statement compares the position with its own snapshot, which is younger than the request: a replica
/// that is merely behind, or was paused, cannot cause a false alarm.
pub async fn installation_hold(pool: &PgPool, seen: Position, cause: &HoldCause) -> Result<Option<Hold>> {
    sqlx::query(
        "UPDATE installation SET held_since = now(), held_cause = $3, holds_request = holds_request + 1
         WHERE held_since IS NULL
           AND (epoch < $1 OR epoch = $1 AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint < $2)",
    )
    .bind(seen.epoch)
    .bind(i64::try_from(seen.horizon).unwrap_or(i64::MAX))
    .bind(Json(cause))
    .run(pool, "put the installation on hold")
    .await?;
    Ok(installation_state(pool).await?.hold)
}

/// Puts the installation on hold if the epoch is still this one and the database lacks one of the marks, and asks all agents to
/// report what they hold. Returns the hold in force, if any.
pub async fn installation_hold_without_marks(
    pool: &PgPool,
    epoch: i64,
    marks: &[HistoryMark],
    cause: &HoldCause,
) -> Result<Option<Hold>> {
    sqlx::query(
        "UPDATE installation SET held_since = now(), held_cause = $3, holds_request = holds_request + 1
         WHERE held_since IS NULL AND epoch = $1 AND EXISTS (
             SELECT FROM unnest($2::bigint[]) AS known (id)
             WHERE NOT EXISTS (SELECT FROM history_marks m WHERE m.id = known.id))",
    )
    .bind(epoch)
    .bind(marks.iter().map(|mark| mark.0.cast_signed()).collect::<Vec<_>>())
    .bind(Json(cause))
    .run(pool, "put the installation on hold")
    .await?;
    Ok(installation_state(pool).await?.hold)
}

/// Puts the installation on hold on request of an operator.
pub async fn installation_hold_by_hand_on_conn(conn: &mut PgConnection, reason: &str) -> Result<bool> {
    let cause = HoldCause::Operator { reason: reason.to_owned() };
    sqlx::query(
        "UPDATE installation SET held_since = now(), held_cause = $1, holds_request = holds_request + 1
         WHERE held_since IS NULL",
    )
    .bind(Json(cause))
    .affected(conn, "put the installation on hold")
    .await
    .map(|rows| rows == 1)
}

/// The state before a raise; the row stays locked until the transaction ends.
#[derive(Clone, Debug)]
pub struct BeforeRaise {
    pub database: DatabaseIds,
    /// Unix seconds, by the database's clock.
    pub now: i64,
    pub hold: Option<Hold>,
    /// The highest sequence id that each agent reported, where it is above the database's; highest first.
    pub claims: Vec<(String, i64)>,
}

pub async fn installation_before_raise_on_conn(conn: &mut PgConnection) -> Result<BeforeRaise> {
    type Row = (i64, i64, Option<jiff_sqlx::Timestamp>, Option<Json<HoldCause>>);
    let (epoch, now, since, cause): Row = sqlx::query_as(
        "SELECT epoch, floor(extract(epoch FROM clock_timestamp()))::bigint, held_since, held_cause
         FROM installation FOR UPDATE",
    )
    .one(&mut *conn, "lock the installation")
    .await?;
    let (sequence, at): (i64, i64) = sqlx::query_as(
        "SELECT greatest((SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM deployment_object_sequence),
                         (SELECT max(sequence_id) FROM deployment_objects),
                         (SELECT max(sequence_after) FROM epochs)),
                floor(extract(epoch FROM greatest(
                         (SELECT created_at FROM deployment_objects ORDER BY sequence_id DESC LIMIT 1),
                         (SELECT max(raised_at) FROM epochs),
                         (SELECT min(created_at) FROM projects))))::bigint",
    )
    .one(&mut *conn, "read the highest sequence id")
    .await?;
    let claims: Vec<(String, i64)> = sqlx::query_as(
        "SELECT a.name, max(reported.sequence_id)
         FROM (SELECT agent_id, sequence_id FROM agent_holds WHERE sequence_id > $1
               UNION ALL
               SELECT agent_id, sequence_id FROM stack_status WHERE sequence_id > $1) reported
         JOIN agents a ON a.id = reported.agent_id
         GROUP BY a.name ORDER BY max(reported.sequence_id) DESC, a.name",
    )
    .bind(sequence)
    .all(conn, "read reported sequence ids")
    .await?;
    let database = DatabaseIds { epoch, sequence, at };
    Ok(BeforeRaise { database, now, hold: hold_of((since, cause)), claims })
}

/// Raises the epoch, continues sequence ids above `raised.sequence`, ends the hold, asks all agents to report
/// what they hold, and records the raise: by whom, and why if an admin lifted the hold.
pub async fn installation_raise_on_conn(
    conn: &mut PgConnection,
    before: &BeforeRaise,
    raised: &Raised,
    by: &str,
    reason: Option<&str>,
) -> Result<Timestamp> {
    // A rollback of the transaction does not undo this; it only leaves another gap in the ids.
    sqlx::query("SELECT setval('deployment_object_sequence', $1)")
        .bind(raised.sequence)
        .run(&mut *conn, "advance the sequence")
        .await?;
    let raised_at: jiff_sqlx::Timestamp = sqlx::query_scalar(
        "INSERT INTO epochs (epoch, raised_by, epoch_before, sequence_before, sequence_after, held_because, reason)
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING raised_at",
    )
    .bind(raised.epoch)
    .bind(by)
    .bind(before.database.epoch)
    .bind(raised.highest)
    .bind(raised.sequence)
    .bind(before.hold.as_ref().map(|hold| &hold.because))
    .bind(reason)
    .one(&mut *conn, "record the raised epoch")
    .await?;
    sqlx::query(
        "UPDATE installation SET epoch = $1, held_since = NULL, held_cause = NULL, holds_request = holds_request + 1",
    )
    .bind(raised.epoch)
    .run(&mut *conn, "raise the epoch")
    .await?;
    // What the agents reported about them since the backup is lost.
    rollouts_abort_all_on_conn(conn, &StopReason::Restored).await?;
    agent_upgrades_abort_all_on_conn(conn, &StopReason::Restored).await?;
    audit_cursor_restart_on_conn(conn).await?;
    Ok(raised_at.to_jiff())
}

/// Returns the last ten raises, newest first.
pub async fn installation_raised(pool: &PgPool) -> Result<Vec<RaisedEpoch>> {
    type Row = (i64, i64, jiff_sqlx::Timestamp, String, i64, i64, Option<String>, Option<String>);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT epoch, epoch_before, raised_at, raised_by, sequence_before, sequence_after, reason, held_because
         FROM epochs ORDER BY epoch DESC LIMIT 10",
    )
    .all(pool, "read the raised epochs")
    .await?;
    let read = |(epoch, epoch_before, at, raised_by, before, after, reason, held_because): Row| RaisedEpoch {
        epoch,
        epoch_before,
        raised_at: at.to_jiff(),
        raised_by,
        reason,
        held_because,
        sequence_before: SequenceId(before),
        sequence_after: SequenceId(after),
    };
    Ok(rows.into_iter().map(read).collect())
}
