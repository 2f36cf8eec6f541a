//! Pending and announced alarms, each of a stack on an agent. An alarm without a row is quiet.

use std::collections::HashMap;
use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::{AgentId, SequenceId, StackId};
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::webhooks::alarm::{Alarm, AlarmKind, Episode, next_check};

/// Identifies an alarm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlarmKey {
    pub project: String,
    pub stack: StackId,
    pub agent: AgentId,
    pub kind: AlarmKind,
}

/// The state of an alarm, and the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAlarm {
    pub alarm: Alarm,
    pub sequence_id: SequenceId,
    pub reason: Reason,
    pub message: Message,
}

fn read_alarm(row: PgRow) -> Result<(AlarmKey, StoredAlarm), sqlx::Error> {
    let episode = Episode {
        since: row.time("since")?,
        last: row.time("last")?,
        count: row.field::<i32>("count")?.unsigned_abs(),
        cause: row.known("cause")?,
    };
    let key = AlarmKey {
        project: row.field("project")?,
        stack: StackId(row.field("stack_id")?),
        agent: AgentId(row.field("agent_id")?),
        kind: row.known("kind")?,
    };
    let stored = StoredAlarm {
        alarm: if row.field("announced")? { Alarm::Announced(episode) } else { Alarm::Pending(episode) },
        sequence_id: SequenceId(row.field("sequence_id")?),
        reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
        message: Message::new(row.field::<String>("message")?),
    };
    Ok((key, stored))
}

/// Returns the alarms of these stacks on the agent, locked in order, so that two transactions never deadlock.
pub async fn webhook_alarm_lock_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<AlarmKey, StoredAlarm>> {
    let alarms = sqlx::query(
        "SELECT project, stack_id, agent_id, kind, announced, since, last, count, cause, sequence_id, reason,
                details, message
         FROM webhook_alarms WHERE agent_id = $1 AND stack_id = ANY($2)
         ORDER BY project, stack_id, agent_id, kind FOR UPDATE",
    )
    .bind(agent.0)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .try_map(read_alarm)
    .all(conn, "read alarms")
    .await?;
    Ok(alarms.into_iter().collect())
}

/// Returns and locks alarms that may change by time alone; skips those that another replica has locked.
pub async fn webhook_alarm_due_on_conn(
    conn: &mut PgConnection,
    limit: i64,
) -> Result<Vec<(AlarmKey, StoredAlarm)>> {
    sqlx::query(
        "SELECT project, stack_id, agent_id, kind, announced, since, last, count, cause, sequence_id, reason,
                details, message
         FROM webhook_alarms WHERE next_check_at <= now() ORDER BY next_check_at LIMIT $1 FOR UPDATE SKIP LOCKED",
    )
    .bind(limit)
    .try_map(read_alarm)
    .all(conn, "read alarms that are due")
    .await
}

/// Stores the state of an alarm.
pub async fn webhook_alarm_store_on_conn(
    conn: &mut PgConnection,
    key: &AlarmKey,
    stored: &StoredAlarm,
    grace: Duration,
) -> Result<()> {
    let (announced, episode) = match stored.alarm {
        Alarm::Quiet => return webhook_alarm_delete_on_conn(conn, key).await,
        Alarm::Pending(episode) => (false, episode),
        Alarm::Announced(episode) => (true, episode),
    };
    sqlx::query(
        "INSERT INTO webhook_alarms (project, stack_id, agent_id, kind, announced, since, last, count, cause,
                                     sequence_id, reason, details, message, next_check_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (project, stack_id, agent_id, kind) DO UPDATE SET
            announced = excluded.announced, since = excluded.since, last = excluded.last, count = excluded.count,
            cause = excluded.cause, sequence_id = excluded.sequence_id, reason = excluded.reason,
            details = excluded.details, message = excluded.message, next_check_at = excluded.next_check_at",
    )
    .bind(&key.project)
    .bind(key.stack.0)
    .bind(key.agent.0)
    .bind(key.kind.to_string())
    .bind(announced)
    .bind(episode.since.to_sqlx())
    .bind(episode.last.to_sqlx())
    .bind(i32::try_from(episode.count).unwrap_or(i32::MAX))
    .bind(episode.cause.to_string())
    .bind(stored.sequence_id.0)
    .bind(stored.reason.code())
    .bind(stored.reason.details())
    .bind(stored.message.to_string())
    .bind(next_check(key.kind, stored.alarm, grace).map(|at| at.to_sqlx()))
    .run(conn, "store an alarm")
    .await
}

async fn webhook_alarm_delete_on_conn(conn: &mut PgConnection, key: &AlarmKey) -> Result<()> {
    sqlx::query(
        "DELETE FROM webhook_alarms WHERE project = $1 AND stack_id = $2 AND agent_id = $3 AND kind = $4",
    )
    .bind(&key.project)
    .bind(key.stack.0)
    .bind(key.agent.0)
    .bind(key.kind.to_string())
    .run(conn, "delete an alarm")
    .await
}
