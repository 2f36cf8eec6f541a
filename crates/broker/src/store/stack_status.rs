//! The last report of each agent about each stack.

use std::collections::HashMap;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::Transition;
use brokkr_api::{AgentId, SequenceId, StackId};
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::filing::Filed;
use crate::domain::status::LastReport;

/// Stores each report that is newer than the stored one: by sequence id, then by time. Hops of the same
/// object accumulate. Of an agent, the given reports have to be about different stacks.
pub async fn stack_status_store_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<()> {
    let count = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let reports = || filed.iter().map(|filed| &filed.report);
    sqlx::query(
        "INSERT INTO stack_status AS old (project, stack_id, agent_id, sequence_id, transition, reason, details,
                                          message, objects, hops, ready, total, at, conditions, conditions_at, reason_key,
                                          applied_sequence_id, agent_name)
         SELECT r.project, r.stack_id, r.agent_id, r.sequence_id, r.transition, r.reason, r.details, r.message, r.objects, r.hops,
                r.ready, r.total, r.at, r.conditions, r.at, r.reason_key,
                CASE WHEN r.transition IN ('applied', 'healthy', 'degraded') THEN r.sequence_id END, a.name
         FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::jsonb[], $8::text[],
                     $9::jsonb[], $10::jsonb[], $11::int[], $12::int[], $13::timestamptz[], $14::jsonb[], $15::bytea[])
              AS r (project, agent_id, stack_id, sequence_id, transition, reason, details, message, objects, hops, ready,
                    total, at, conditions, reason_key)
         JOIN agents a ON a.id = r.agent_id
         ORDER BY r.project, r.stack_id, r.agent_id
         ON CONFLICT (project, stack_id, agent_id) DO UPDATE SET
            sequence_id = excluded.sequence_id, transition = excluded.transition, reason = excluded.reason,
            details = excluded.details, message = excluded.message, objects = excluded.objects, ready = excluded.ready, total = excluded.total,
            at = excluded.at, reason_key = excluded.reason_key,
            since = CASE WHEN (old.sequence_id, old.transition) = (excluded.sequence_id, excluded.transition)
                         THEN old.since ELSE now() END,
            bad_before = CASE WHEN old.sequence_id = excluded.sequence_id OR EXISTS (
                                   -- A version that not every agent got says nothing about the one before it.
                                   SELECT FROM rollouts r WHERE r.project = old.project AND r.stack_id = old.stack_id
                                     AND r.sequence_id = old.sequence_id AND r.state <> 'completed') THEN old.bad_before
                              ELSE old.transition IN ('failed', 'degraded') END,
            applied_sequence_id = CASE WHEN excluded.transition = 'removed' THEN NULL
                                       ELSE coalesce(excluded.applied_sequence_id, old.applied_sequence_id) END,
            conditions = CASE WHEN old.sequence_id = excluded.sequence_id AND old.conditions_at > excluded.at
                              THEN old.conditions ELSE excluded.conditions END,
            conditions_at = CASE WHEN old.sequence_id = excluded.sequence_id
                                 THEN greatest(old.conditions_at, excluded.at) ELSE excluded.at END,
            hops = CASE WHEN old.sequence_id = excluded.sequence_id THEN old.hops || excluded.hops
                        ELSE excluded.hops END
         WHERE (excluded.sequence_id, excluded.at) >= (old.sequence_id, old.at)
            -- An agent that has not begun a version goes back to the one before when that version is withdrawn.
            OR excluded.at > old.at AND EXISTS (
               SELECT FROM rollouts r WHERE r.project = old.project AND r.stack_id = old.stack_id
                 AND r.sequence_id = old.sequence_id AND r.state NOT IN ('running', 'soaking', 'completed'))",
    )
    .bind(filed.iter().map(|filed| filed.project.as_str()).collect::<Vec<_>>())
    .bind(filed.iter().map(|filed| filed.agent.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.stack_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.sequence_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.transition.to_string()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.reason.code()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.reason.details()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.message.to_string()).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(&report.objects)).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(report.hops)).collect::<Vec<_>>())
    .bind(reports().map(|report| count(report.ready)).collect::<Vec<_>>())
    .bind(reports().map(|report| count(report.total)).collect::<Vec<_>>())
    .bind(reports().map(|report| report.at.to_sqlx()).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(&report.conditions)).collect::<Vec<_>>())
    .bind(filed.iter().map(|filed| filed.group.as_ref().map(|group| group.key.as_slice())).collect::<Vec<_>>())
    .run(conn, "store the status")
    .await
}

/// Stores only the conditions of reports that change no state, unless the stored conditions are newer. The
/// given reports have to be about different stacks, of each agent.
pub async fn stack_status_store_conditions_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<()> {
    let reports = || filed.iter().map(|filed| &filed.report);
    sqlx::query(
        "UPDATE stack_status AS old SET conditions = r.conditions, conditions_at = r.at
         FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::timestamptz[], $6::jsonb[])
              AS r (project, agent_id, stack_id, sequence_id, at, conditions)
         WHERE old.project = r.project AND old.agent_id = r.agent_id AND old.stack_id = r.stack_id
           AND old.sequence_id = r.sequence_id AND old.conditions_at <= r.at",
    )
    .bind(filed.iter().map(|filed| filed.project.as_str()).collect::<Vec<_>>())
    .bind(filed.iter().map(|filed| filed.agent.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.stack_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.sequence_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.at.to_sqlx()).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(&report.conditions)).collect::<Vec<_>>())
    .run(conn, "store the conditions")
    .await
}

/// Returns the agents after a name, sorted by name, that ever reported about the stack.
pub async fn stack_status_reporters(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, AgentId)>> {
    let rows: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT a.name, a.id FROM stack_status t JOIN agents a ON a.id = t.agent_id
         WHERE t.project = $1 AND t.stack_id = $2 AND a.name > $3 ORDER BY a.name LIMIT $4",
    )
    .bind(project)
    .bind(stack.0)
    .bind(after.unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .all(pool, "list the agents that reported about the stack")
    .await?;
    Ok(rows.into_iter().map(|(name, id)| (name, AgentId(id))).collect())
}

fn read_report(row: PgRow) -> Result<LastReport, sqlx::Error> {
    Ok(LastReport {
        sequence_id: SequenceId(row.field("sequence_id")?),
        transition: row.known("transition")?,
        reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
        message: Message::new(row.field::<String>("message")?),
        objects: row.json("objects")?,
        hops: row.json("hops")?,
        conditions: row.json("conditions")?,
        ready: row.field::<i32>("ready")?.unsigned_abs(),
        total: row.field::<i32>("total")?.unsigned_abs(),
    })
}

macro_rules! status_columns {
    ($($rest:tt)*) => {
        concat!(
            "SELECT t.stack_id, t.agent_id, t.sequence_id, t.transition, t.reason, t.details, t.message, t.objects, t.hops,
                    t.conditions, t.ready, t.total",
            $($rest)*
        )
    };
}

const ACTION: &str = "read the status of the stack";

/// Returns the last reports of these agents about the stack.
pub async fn stack_status_fetch(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    agents: &[AgentId],
) -> Result<HashMap<AgentId, LastReport>> {
    let reports = sqlx::query(status_columns!(
        " FROM stack_status t WHERE t.project = $1 AND t.stack_id = $2 AND t.agent_id = ANY($3)"
    ))
    .bind(project)
    .bind(stack.0)
    .bind(agents.iter().map(|agent| agent.0).collect::<Vec<_>>())
    .try_map(|row| Ok((AgentId(row.field("agent_id")?), read_report(row)?)));
    Ok(reports.all(pool, ACTION).await?.into_iter().collect())
}

/// Returns the last reports of the agent about these stacks of a project.
pub async fn stack_status_of_agent(
    pool: &PgPool,
    project: &str,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<StackId, LastReport>> {
    let reports = sqlx::query(status_columns!(
        " FROM stack_status t WHERE t.project = $1 AND t.stack_id = ANY($2) AND t.agent_id = $3"
    ))
    .bind(project)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .bind(agent.0)
    .try_map(|row| Ok((StackId(row.field("stack_id")?), read_report(row)?)));
    Ok(reports.all(pool, ACTION).await?.into_iter().collect())
}

type NamedReport = (String, AgentId, Option<LastReport>);

/// Returns the agents after a name, sorted by name, whose last report about the stack has this transition.
pub async fn stack_status_by_transition(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    transition: &Transition,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<NamedReport>> {
    sqlx::query(status_columns!(
        ", t.agent_name AS name FROM stack_status t
         WHERE t.project = $1 AND t.stack_id = $2 AND t.transition = $3 AND t.agent_name > $4
         ORDER BY t.agent_name LIMIT $5"
    ))
    .bind(project)
    .bind(stack.0)
    .bind(transition.to_string())
    .bind(after.unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .try_map(|row| Ok((row.field("name")?, AgentId(row.field("agent_id")?), Some(read_report(row)?))))
    .all(pool, ACTION)
    .await
}

/// Returns the agents whose last report about the stack has this reason, whatever its details.
pub async fn stack_status_with_reason(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    reason: &str,
) -> Result<Vec<AgentId>> {
    let agents: Vec<Uuid> = sqlx::query_scalar(
        "SELECT t.agent_id FROM reasons r JOIN stack_status t ON t.project = r.project AND t.reason_key = r.key
         WHERE r.project = $1 AND r.reason = $3 AND t.stack_id = $2",
    )
    .bind(project)
    .bind(stack.0)
    .bind(reason)
    .all(pool, ACTION)
    .await?;
    Ok(agents.into_iter().map(AgentId).collect())
}

/// Returns the agents after a name, sorted by name, each with its last report about the stack, if any.
pub async fn stack_status_walk(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<NamedReport>> {
    let agents: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT id, name FROM agents WHERE name > $1 ORDER BY name LIMIT $2")
            .bind(after.unwrap_or_default())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .all(pool, ACTION)
            .await?;
    let ids: Vec<AgentId> = agents.iter().map(|(id, _)| AgentId(*id)).collect();
    let mut reports = stack_status_fetch(pool, project, stack, &ids).await?;
    Ok(agents.into_iter().map(|(id, name)| (name, AgentId(id), reports.remove(&AgentId(id)))).collect())
}
