//! Troubles of stacks on agents that are suspected, or were told. A trouble without a row is quiet.

use std::collections::HashMap;
use std::time::Duration;

use brokkr_api::{AgentId, SequenceId, StackId};
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Doing as _, StoreError, known};
use crate::domain::webhooks::alarm::{Alarm, Spell, Trouble, look_at};

/// Whose trouble it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlarmKey {
    pub project: String,
    pub stack: StackId,
    pub agent: AgentId,
    pub trouble: Trouble,
}

/// How it stands, and what was said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAlarm {
    pub alarm: Alarm,
    pub sequence_id: SequenceId,
    pub reason: String,
    pub message: String,
}

#[derive(sqlx::FromRow)]
struct AlarmRow {
    project: String,
    stack_id: Uuid,
    agent_id: Uuid,
    trouble: String,
    told: bool,
    since: jiff_sqlx::Timestamp,
    last: jiff_sqlx::Timestamp,
    count: i32,
    cause: String,
    sequence_id: i64,
    reason: String,
    message: String,
}

impl AlarmRow {
    fn alarm(self) -> Result<(AlarmKey, StoredAlarm), sqlx::Error> {
        let spell = Spell {
            since: self.since.to_jiff(),
            last: self.last.to_jiff(),
            count: self.count.unsigned_abs(),
            cause: known(&self.cause)?,
        };
        let key = AlarmKey {
            project: self.project,
            stack: StackId(self.stack_id),
            agent: AgentId(self.agent_id),
            trouble: known(&self.trouble)?,
        };
        let kept = StoredAlarm {
            alarm: if self.told { Alarm::Told(spell) } else { Alarm::Suspect(spell) },
            sequence_id: SequenceId(self.sequence_id),
            reason: self.reason,
            message: self.message,
        };
        Ok((key, kept))
    }
}

/// The troubles of these stacks on the agent, locked. In order, so that two never wait for each other.
pub async fn webhook_alarm_lock_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<AlarmKey, StoredAlarm>, StoreError> {
    let rows: Vec<AlarmRow> = sqlx::query_as(
        "SELECT project, stack_id, agent_id, trouble, told, since, last, count, cause, sequence_id, reason, message
         FROM webhook_alarms WHERE agent_id = $1 AND stack_id = ANY($2)
         ORDER BY project, stack_id, agent_id, trouble FOR UPDATE",
    )
    .bind(agent.0)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .doing("read what is known of troubles")?;
    rows.into_iter().map(AlarmRow::alarm).collect::<Result<_, _>>().doing("read what is known of troubles")
}

/// Troubles that time alone may have changed, locked; those that somebody else looks at are left to them.
pub async fn webhook_alarm_due_on_conn(
    connection: &mut PgConnection,
    limit: i64,
) -> Result<Vec<(AlarmKey, StoredAlarm)>, StoreError> {
    let rows: Vec<AlarmRow> = sqlx::query_as(
        "SELECT project, stack_id, agent_id, trouble, told, since, last, count, cause, sequence_id, reason, message
         FROM webhook_alarms WHERE look_at <= now() ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED",
    )
    .bind(limit)
    .fetch_all(connection)
    .await
    .doing("look for troubles that last")?;
    rows.into_iter().map(AlarmRow::alarm).collect::<Result<_, _>>().doing("look for troubles that last")
}

/// Keeps a trouble as it stands now.
pub async fn webhook_alarm_store_on_conn(
    connection: &mut PgConnection,
    key: &AlarmKey,
    kept: &StoredAlarm,
    grace: Duration,
) -> Result<(), StoreError> {
    let (told, spell) = match kept.alarm {
        Alarm::Quiet => return webhook_alarm_delete_on_conn(connection, key).await,
        Alarm::Suspect(spell) => (false, spell),
        Alarm::Told(spell) => (true, spell),
    };
    sqlx::query(
        "INSERT INTO webhook_alarms (project, stack_id, agent_id, trouble, told, since, last, count, cause,
                                     sequence_id, reason, message, look_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
         ON CONFLICT (project, stack_id, agent_id, trouble) DO UPDATE SET
            told = excluded.told, since = excluded.since, last = excluded.last, count = excluded.count,
            cause = excluded.cause, sequence_id = excluded.sequence_id, reason = excluded.reason,
            message = excluded.message, look_at = excluded.look_at",
    )
    .bind(&key.project)
    .bind(key.stack.0)
    .bind(key.agent.0)
    .bind(key.trouble.to_string())
    .bind(told)
    .bind(spell.since.to_sqlx())
    .bind(spell.last.to_sqlx())
    .bind(i32::try_from(spell.count).unwrap_or(i32::MAX))
    .bind(spell.cause.to_string())
    .bind(kept.sequence_id.0)
    .bind(&kept.reason)
    .bind(&kept.message)
    .bind(look_at(key.trouble, kept.alarm, grace).map(|at| at.to_sqlx()))
    .execute(connection)
    .await
    .map(|_| ())
    .doing("keep what is known of a trouble")
}

async fn webhook_alarm_delete_on_conn(
    connection: &mut PgConnection,
    key: &AlarmKey,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM webhook_alarms WHERE project = $1 AND stack_id = $2 AND agent_id = $3 AND trouble = $4",
    )
    .bind(&key.project)
    .bind(key.stack.0)
    .bind(key.agent.0)
    .bind(key.trouble.to_string())
    .execute(connection)
    .await
    .map(|_| ())
    .doing("forget a trouble that is over")
}
