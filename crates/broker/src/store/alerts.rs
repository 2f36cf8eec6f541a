//! What webhooks were sent about agents with the same problem, and which agents have it.

use std::collections::HashMap;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::why::Cause;
use brokkr_api::{AgentId, Labels, SequenceId, StackId, WebhookId};
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::alerts::group::{Group, OpenAlert, Phase};
use crate::domain::alerts::message::{EXAMPLES, Examples};
use crate::domain::webhooks::happening::NamedStack;

/// Identifies a group of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlertKey {
    pub webhook: WebhookId,
    pub stack: StackId,
    pub cause: Cause,
}

/// The agents of a stack with the same lasting cause.
#[derive(Clone, Debug)]
pub struct FailingAgents {
    pub stack: NamedStack,
    pub labels: Labels,
    pub cause: Cause,
    pub agents: u32,
}

/// Returns the projects with lasting problems, or with alerts. Usually none, and then nothing else is asked.
pub async fn alert_projects(pool: &PgPool) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT project FROM webhook_alarms WHERE lasting UNION SELECT project FROM alerts ORDER BY project",
    )
    .all(pool, "find the projects with alerts")
    .await
}

/// Returns the groups of a project, with the number of their agents.
pub async fn alert_failing_on_conn(conn: &mut PgConnection, project: &str) -> Result<Vec<FailingAgents>> {
    sqlx::query(
        "SELECT a.stack_id, s.name, s.labels, a.cause, a.agents
         FROM (SELECT stack_id, cause, count(DISTINCT agent_id)::int AS agents FROM webhook_alarms
               WHERE project = $1 AND lasting GROUP BY stack_id, cause) a
         JOIN stacks s ON s.project = $1 AND s.id = a.stack_id
         ORDER BY s.name, a.stack_id, a.cause",
    )
    .bind(project)
    .try_map(|row: PgRow| {
        Ok(FailingAgents {
            stack: NamedStack { id: StackId(row.field("stack_id")?), name: row.field("name")? },
            labels: row.json("labels")?,
            cause: row.known("cause")?,
            agents: row.field::<i32>("agents")?.unsigned_abs(),
        })
    })
    .all(conn, "count the agents with lasting problems")
    .await
}

/// Returns the agents of a group.
pub async fn alert_agents_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: StackId,
    cause: Cause,
) -> Result<Vec<AgentId>> {
    let agents: Vec<Uuid> = sqlx::query_scalar(
        "SELECT DISTINCT agent_id FROM webhook_alarms
         WHERE project = $1 AND stack_id = $2 AND cause = $3 AND lasting",
    )
    .bind(project)
    .bind(stack.0)
    .bind(cause.to_string())
    .all(conn, "read the agents with a lasting problem")
    .await?;
    Ok(agents.into_iter().map(AgentId).collect())
}

/// Returns the first agents of a group by name, or of `among`, and the report of the first.
pub async fn alert_examples_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: StackId,
    cause: Cause,
    among: Option<&[AgentId]>,
) -> Result<Examples> {
    let found = sqlx::query(
        "SELECT DISTINCT ON (g.name) g.name, a.sequence_id, a.reason, a.details, a.message
         FROM webhook_alarms a JOIN agents g ON g.id = a.agent_id
         WHERE a.project = $1 AND a.stack_id = $2 AND a.cause = $3 AND a.lasting
           AND ($4::uuid[] IS NULL OR a.agent_id = ANY($4))
         ORDER BY g.name, a.kind LIMIT $5",
    )
    .bind(project)
    .bind(stack.0)
    .bind(cause.to_string())
    .bind(among.map(|agents| agents.iter().map(|agent| agent.0).collect::<Vec<_>>()))
    .bind(i64::try_from(EXAMPLES).unwrap_or(i64::MAX))
    .try_map(|row: PgRow| {
        Ok(Examples {
            agents: vec![row.field("name")?],
            sequence_id: Some(SequenceId(row.field("sequence_id")?)),
            reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
            message: Message::new(row.field::<String>("message")?),
        })
    })
    .all(conn, "read examples of agents with a lasting problem")
    .await?;
    let mut found: std::collections::VecDeque<Examples> = found.into();
    let mut examples = found.pop_front().unwrap_or_default();
    examples.agents.extend(found.into_iter().flat_map(|other| other.agents));
    Ok(examples)
}

/// Returns what the webhooks of a project were sent, with the stacks that it is about.
pub async fn alert_fetch_on_conn(
    conn: &mut PgConnection,
    project: &str,
) -> Result<HashMap<AlertKey, (NamedStack, Group)>> {
    let rows = sqlx::query(
        "SELECT a.webhook_id, a.stack_id, coalesce(s.name, '') AS name, a.cause, a.since, a.alert_id, a.agents, a.calm_since,
                a.problem_at, a.resolved_at
         FROM alerts a LEFT JOIN stacks s ON s.project = a.project AND s.id = a.stack_id
         WHERE a.project = $1",
    )
    .bind(project)
    .try_map(|row: PgRow| {
        let stack = NamedStack { id: StackId(row.field("stack_id")?), name: row.field("name")? };
        let alert_id: Option<Uuid> = row.field("alert_id")?;
        let phase = match (row.time_opt("since")?, alert_id) {
            (None, _) => Phase::Quiet,
            (Some(since), None) => Phase::Gathering { since },
            (Some(since), Some(id)) => {
                let agents = row.field::<Option<i32>>("agents")?.unwrap_or_default().unsigned_abs();
                Phase::Open(OpenAlert { id, since, agents, calm_since: row.time_opt("calm_since")? })
            }
        };
        let group =
            Group { phase, problem_at: row.time_opt("problem_at")?, resolved_at: row.time_opt("resolved_at")? };
        let webhook = WebhookId(row.field("webhook_id")?);
        Ok((AlertKey { webhook, stack: stack.id, cause: row.known("cause")? }, (stack, group)))
    })
    .all(conn, "read the alerts")
    .await?;
    Ok(rows.into_iter().collect())
}

/// Stores the state of a group.
pub async fn alert_store_on_conn(
    conn: &mut PgConnection,
    project: &str,
    key: AlertKey,
    group: &Group,
) -> Result<()> {
    let (since, open) = match group.phase {
        Phase::Quiet => (None, None),
        Phase::Gathering { since } => (Some(since), None),
        Phase::Open(alert) => (Some(alert.since), Some(alert)),
    };
    sqlx::query(
        "INSERT INTO alerts (project, webhook_id, stack_id, cause, since, alert_id, agents, calm_since, problem_at, resolved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (project, webhook_id, stack_id, cause) DO UPDATE SET
            since = excluded.since, alert_id = excluded.alert_id, agents = excluded.agents,
            calm_since = excluded.calm_since, problem_at = excluded.problem_at, resolved_at = excluded.resolved_at",
    )
    .bind(project)
    .bind(key.webhook.0)
    .bind(key.stack.0)
    .bind(key.cause.to_string())
    .bind(since.map(|at| at.to_sqlx()))
    .bind(open.map(|alert| alert.id))
    .bind(open.map(|alert| i32::try_from(alert.agents).unwrap_or(i32::MAX)))
    .bind(open.and_then(|alert| alert.calm_since).map(|at| at.to_sqlx()))
    .bind(group.problem_at.map(|at| at.to_sqlx()))
    .bind(group.resolved_at.map(|at| at.to_sqlx()))
    .run(conn, "store an alert")
    .await
}

pub async fn alert_delete_on_conn(conn: &mut PgConnection, project: &str, key: AlertKey) -> Result<()> {
    sqlx::query("DELETE FROM alerts WHERE project = $1 AND webhook_id = $2 AND stack_id = $3 AND cause = $4")
        .bind(project)
        .bind(key.webhook.0)
        .bind(key.stack.0)
        .bind(key.cause.to_string())
        .run(conn, "delete an alert")
        .await
}
