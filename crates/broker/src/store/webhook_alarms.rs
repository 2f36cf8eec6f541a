//! Pending and lasting alarms, each of a stack on an agent. An alarm without a row is quiet.

use std::collections::HashMap;
use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::why::Cause;
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
    /// Agents with the same cause are one alert.
    pub cause: Cause,
    pub sequence_id: SequenceId,
    pub reason: Reason,
    pub message: Message,
}

fn read_alarm(row: PgRow) -> Result<(AlarmKey, StoredAlarm), sqlx::Error> {
    let episode = Episode {
        since: row.time("since")?,
        last: row.time("last")?,
        count: row.field::<i32>("count")?.unsigned_abs(),
        cause: row.known("trouble")?,
    };
    let key = AlarmKey {
        project: row.field("project")?,
        stack: StackId(row.field("stack_id")?),
        agent: AgentId(row.field("agent_id")?),
        kind: row.known("kind")?,
    };
    let stored = StoredAlarm {
        alarm: if row.field("lasting")? { Alarm::Lasting(episode) } else { Alarm::Pending(episode) },
        cause: row.known("cause")?,
        sequence_id: SequenceId(row.field("sequence_id")?),
        reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
        message: Message::new(row.field::<String>("message")?),
    };
    Ok((key, stored))
}

/// Returns the alarms of these stacks on these agents, locked in order, so that two transactions never deadlock.
pub async fn webhook_alarm_lock_on_conn(
    conn: &mut PgConnection,
    of: &[(&str, StackId, AgentId)],
) -> Result<HashMap<AlarmKey, StoredAlarm>> {
    let alarms = sqlx::query(
        "SELECT project, stack_id, agent_id, kind, lasting, since, last, count, trouble, cause, sequence_id, reason,
                details, message
         FROM webhook_alarms alarm
         JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::uuid[], $3::uuid[])) AS of (project, stack_id, agent_id)
              USING (project, stack_id, agent_id)
         ORDER BY project, stack_id, agent_id, kind FOR UPDATE OF alarm",
    )
    .bind(of.iter().map(|(project, ..)| *project).collect::<Vec<_>>())
    .bind(of.iter().map(|(_, stack, _)| stack.0).collect::<Vec<_>>())
    .bind(of.iter().map(|(_, _, agent)| agent.0).collect::<Vec<_>>())
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
        "SELECT project, stack_id, agent_id, kind, lasting, since, last, count, trouble, cause, sequence_id, reason,
                details, message
         FROM webhook_alarms WHERE next_check_at <= now() ORDER BY next_check_at LIMIT $1 FOR UPDATE SKIP LOCKED",
    )
    .bind(limit)
    .try_map(read_alarm)
    .all(conn, "read alarms that are due")
    .await
}

/// Stores the states of alarms; each may be given once.
pub async fn webhook_alarm_store_on_conn(
    conn: &mut PgConnection,
    alarms: &[(&AlarmKey, &StoredAlarm)],
    grace: Duration,
) -> Result<()> {
    let episodes = alarms.iter().filter_map(|(key, stored)| match stored.alarm {
        Alarm::Quiet => None,
        Alarm::Pending(episode) => Some((*key, *stored, false, episode)),
        Alarm::Lasting(episode) => Some((*key, *stored, true, episode)),
    });
    let (raised, quiet): (Vec<_>, Vec<&AlarmKey>) = (
        episodes.collect(),
        alarms.iter().filter(|(_, stored)| stored.alarm == Alarm::Quiet).map(|(key, _)| *key).collect(),
    );
    if !quiet.is_empty() {
        webhook_alarm_delete_on_conn(conn, &quiet).await?;
    }
    if raised.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO webhook_alarms (project, stack_id, agent_id, kind, lasting, since, last, count, trouble, cause,
                                     sequence_id, reason, details, message, next_check_at)
         SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::boolean[], $6::timestamptz[],
                              $7::timestamptz[], $8::int[], $9::text[], $10::text[], $11::bigint[], $12::text[],
                              $13::jsonb[], $14::text[], $15::timestamptz[])
         ORDER BY 1, 2, 3, 4
         ON CONFLICT (project, stack_id, agent_id, kind) DO UPDATE SET
            lasting = excluded.lasting, since = excluded.since, last = excluded.last, count = excluded.count,
            trouble = excluded.trouble, cause = excluded.cause, sequence_id = excluded.sequence_id, reason = excluded.reason,
            details = excluded.details, message = excluded.message, next_check_at = excluded.next_check_at",
    )
    .bind(raised.iter().map(|(key, ..)| key.project.as_str()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(key, ..)| key.stack.0).collect::<Vec<_>>())
    .bind(raised.iter().map(|(key, ..)| key.agent.0).collect::<Vec<_>>())
    .bind(raised.iter().map(|(key, ..)| key.kind.to_string()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, _, lasting, _)| *lasting).collect::<Vec<_>>())
    .bind(raised.iter().map(|(.., episode)| episode.since.to_sqlx()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(.., episode)| episode.last.to_sqlx()).collect::<Vec<_>>())
    .bind(
        raised
            .iter()
            .map(|(.., episode)| i32::try_from(episode.count).unwrap_or(i32::MAX))
            .collect::<Vec<_>>(),
    )
    .bind(raised.iter().map(|(.., episode)| episode.cause.to_string()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, stored, ..)| stored.cause.to_string()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, stored, ..)| stored.sequence_id.0).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, stored, ..)| stored.reason.code()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, stored, ..)| stored.reason.details()).collect::<Vec<_>>())
    .bind(raised.iter().map(|(_, stored, ..)| stored.message.to_string()).collect::<Vec<_>>())
    .bind(
        raised
            .iter()
            .map(|(key, stored, ..)| next_check(key.kind, stored.alarm, grace).map(|at| at.to_sqlx()))
            .collect::<Vec<_>>(),
    )
    .run(conn, "store alarms")
    .await
}

async fn webhook_alarm_delete_on_conn(conn: &mut PgConnection, alarms: &[&AlarmKey]) -> Result<()> {
    sqlx::query(
        "DELETE FROM webhook_alarms WHERE (project, stack_id, agent_id, kind) IN (
            SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[]))",
    )
    .bind(alarms.iter().map(|key| key.project.as_str()).collect::<Vec<_>>())
    .bind(alarms.iter().map(|key| key.stack.0).collect::<Vec<_>>())
    .bind(alarms.iter().map(|key| key.agent.0).collect::<Vec<_>>())
    .bind(alarms.iter().map(|key| key.kind.to_string()).collect::<Vec<_>>())
    .run(conn, "delete alarms")
    .await
}

/// Deletes the alarms of projects without an enabled webhook, because nothing updates them.
pub async fn webhook_alarm_delete_unwatched_on_conn(conn: &mut PgConnection) -> Result<()> {
    sqlx::query(
        "DELETE FROM webhook_alarms a
         WHERE NOT EXISTS (SELECT FROM webhooks w WHERE w.project = a.project AND w.enabled)",
    )
    .run(conn, "delete alarms without a webhook")
    .await
}
