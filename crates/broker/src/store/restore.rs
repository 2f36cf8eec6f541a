//! State after a restore: which agents have not reported what they hold, which are ahead, and which stacks the
//! database does not know.

use std::collections::{HashMap, HashSet};

use brokkr_api::system::{Holder, UnsettledStack};
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::deployment_objects::deployment_object_fetch_many;
use super::stacks::StackRef;
use super::{Columns as _, Fetch as _, Result, Run as _, checksum};

/// Returns the agents that have not reported what they hold since the last request to do so.
pub async fn restore_agents_to_report(pool: &PgPool) -> Result<HashSet<AgentId>> {
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM agents WHERE holds_reported < (SELECT holds_request FROM installation)",
    )
    .all(pool, "list agents that have to report what they hold")
    .await?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// How agents and the database differ on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// Agents have a newer version than the database.
    Ahead,
    /// The database does not know the stack.
    Unknown,
    /// Agents say that they have the stack, which does not target them.
    Unconfirmed,
}

const AHEAD: &str =
    "h.confirmed AND h.ended_at IS NULL AND EXISTS (SELECT FROM stacks s WHERE s.id = h.stack_id
                             AND h.sequence_id > coalesce(greatest(s.newest_sequence_id, s.staged_sequence_id), 0))";
const UNKNOWN: &str = "NOT h.confirmed AND NOT EXISTS (SELECT FROM stacks s WHERE s.id = h.stack_id)";
const UNCONFIRMED: &str = "NOT h.confirmed AND EXISTS (SELECT FROM stacks s WHERE s.id = h.stack_id)";

impl Unsettled {
    fn condition(self) -> &'static str {
        match self {
            Self::Ahead => AHEAD,
            Self::Unknown => UNKNOWN,
            Self::Unconfirmed => UNCONFIRMED,
        }
    }
}

/// Returns the versions that the agent reported of these stacks, where they are newer than the database's.
pub async fn restore_ahead_of(
    pool: &PgPool,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<StackId, SequenceId>> {
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT h.stack_id, h.sequence_id FROM agent_holds h
         WHERE h.agent_id = $1 AND h.stack_id = ANY($2) AND {AHEAD}"
    )))
    .bind(agent.0)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .all(pool, "read on which stacks the agent is ahead")
    .await?;
    Ok(rows.into_iter().map(|(stack, sequence)| (StackId(stack), SequenceId(sequence))).collect())
}

/// How much is left to settle after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RestoreCounts {
    pub to_report: i64,
    pub ahead: i64,
    pub unknown: i64,
    pub unconfirmed: i64,
    pub kept: i64,
}

pub async fn restore_count(pool: &PgPool) -> Result<RestoreCounts> {
    sqlx::query_as(AssertSqlSafe(format!(
        "SELECT (SELECT count(*) FROM agents WHERE holds_reported < (SELECT holds_request FROM installation)) AS to_report,
                (SELECT count(DISTINCT h.stack_id) FROM agent_holds h WHERE {AHEAD}) AS ahead,
                (SELECT count(DISTINCT h.stack_id) FROM agent_holds h WHERE {UNKNOWN}) AS unknown,
                (SELECT count(DISTINCT h.stack_id) FROM agent_holds h WHERE {UNCONFIRMED}) AS unconfirmed,
                (SELECT count(*) FROM stack_targets WHERE kept_at IS NOT NULL) AS kept"
    )))
    .one(pool, "count stacks to settle")
    .await
}

/// The number of holders that a list shows for each stack.
const SHOWN: i64 = 100;

/// Lists stacks to settle by id, with one more than `limit` if there are more.
pub async fn restore_list(
    pool: &PgPool,
    unsettled: Unsettled,
    after: Option<StackId>,
    limit: usize,
) -> Result<Vec<UnsettledStack>> {
    let condition = unsettled.condition();
    let rows: Vec<(UnsettledStack, Option<i64>, Holder)> = sqlx::query(AssertSqlSafe(format!(
        "WITH page AS (
             SELECT h.stack_id, count(*) AS agents FROM agent_holds h
             WHERE ($1::uuid IS NULL OR h.stack_id > $1) AND {condition}
             GROUP BY h.stack_id ORDER BY h.stack_id LIMIT $2
         )
         SELECT * FROM (
             SELECT h.stack_id, page.agents, h.agent_id, a.name AS agent_name, h.sequence_id, h.checksum, h.confirmed,
                    coalesce(h.removing, false) AS removing,
                    coalesce(s.project, h.reported_project, h.project) AS project,
                    coalesce(s.name, h.stack_name) AS stack_name, s.newest_sequence_id AS newest,
                    row_number() OVER (PARTITION BY h.stack_id
                                       ORDER BY h.sequence_id DESC NULLS LAST, a.name) AS rank
             FROM page
             JOIN agent_holds h ON h.stack_id = page.stack_id
             JOIN agents a ON a.id = h.agent_id
             LEFT JOIN stacks s ON s.id = h.stack_id
             WHERE {condition}
         ) ranked WHERE rank <= $3 ORDER BY stack_id, rank"
    )))
    .bind(after.map(|after| after.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .bind(SHOWN)
    .try_map(|row| {
        let stack = UnsettledStack {
            project: row.field("project")?,
            stack_id: StackId(row.field("stack_id")?),
            stack_name: row.field::<Option<String>>("stack_name")?.unwrap_or_default(),
            restored: None,
            agent_count: row.field::<i64>("agents")?.cast_unsigned(),
            agents: Vec::new(),
        };
        Ok((stack, row.field("newest")?, read_holder(row)?))
    })
    .all(pool, "list stacks to settle")
    .await?;
    let newest: Vec<i64> = rows.iter().filter_map(|(_, newest, _)| *newest).collect();
    let restored = deployment_object_fetch_many(pool, &newest).await?;
    let mut stacks: Vec<UnsettledStack> = Vec::new();
    for (stack, newest, holder) in rows {
        if stacks.last().is_none_or(|last| last.stack_id != stack.stack_id) {
            let restored = restored.iter().find(|object| Some(object.sequence_id.0) == newest).cloned();
            stacks.push(UnsettledStack { restored, ..stack });
        }
        if let Some(stack) = stacks.last_mut() {
            stack.agents.push(holder);
        }
    }
    Ok(stacks)
}

fn read_holder(row: PgRow) -> Result<Holder, sqlx::Error> {
    Ok(Holder {
        agent_id: AgentId(row.field("agent_id")?),
        agent_name: row.known("agent_name")?,
        sequence_id: row.field::<Option<i64>>("sequence_id")?.map(SequenceId),
        checksum: row.field::<Option<Vec<u8>>>("checksum")?.as_deref().map(checksum),
        removing: row.field("removing")?,
        confirmed: row.field("confirmed")?,
    })
}

/// Finds unsettled stacks by id or name: each with its id, and its project if the database knows it.
pub async fn restore_find_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: &StackRef,
) -> Result<Vec<(StackId, Option<String>)>> {
    let (id, name) = match stack {
        StackRef::Id(id) => (Some(id.0), None),
        StackRef::Name(name) => (None, Some(name)),
    };
    let rows: Vec<(Uuid, Option<String>)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT DISTINCT h.stack_id, s.project
         FROM agent_holds h LEFT JOIN stacks s ON s.id = h.stack_id
         WHERE (h.stack_id = $1 OR coalesce(s.name, h.stack_name) = $2
                                   AND coalesce(s.project, h.reported_project) = $3)
           AND (({AHEAD}) OR ({UNKNOWN}) OR ({UNCONFIRMED}))"
    )))
    .bind(id)
    .bind(name)
    .bind(project)
    .all(conn, "find stacks to settle")
    .await?;
    Ok(rows.into_iter().map(|(id, project)| (StackId(id), project)).collect())
}

/// Lists agents that hold the stack, by name, with one more than `limit` if there are more.
pub async fn restore_holders(
    pool: &PgPool,
    stack: StackId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Holder>> {
    sqlx::query(
        "SELECT h.agent_id, a.name AS agent_name, h.sequence_id, h.checksum, h.confirmed,
                coalesce(h.removing, false) AS removing
         FROM agent_holds h JOIN agents a ON a.id = h.agent_id
         WHERE h.stack_id = $1 AND h.ended_at IS NULL AND ($2::text IS NULL OR a.name > $2)
         ORDER BY a.name LIMIT $3",
    )
    .bind(stack.0)
    .bind(after)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_holder)
    .all(pool, "list the holders of a stack")
    .await
}

/// Project and name of a stack, as an agent reported them.
#[derive(Clone, Debug)]
pub struct ReportedStack {
    pub project: String,
    pub stack_name: String,
}

/// Reads project and name of the stack, as its agents reported them: more than one if they disagree.
pub async fn restore_reported_on_conn(conn: &mut PgConnection, stack: StackId) -> Result<Vec<ReportedStack>> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT reported_project, stack_name FROM agent_holds
         WHERE stack_id = $1 AND sequence_id IS NOT NULL AND ended_at IS NULL ORDER BY 1, 2 LIMIT 3",
    )
    .bind(stack.0)
    .all(conn, "read what agents reported about the stack")
    .await?;
    Ok(rows.into_iter().map(|(project, stack_name)| ReportedStack { project, stack_name }).collect())
}

/// Creates, under its old id, a stack that the database lost: without content and targets, and as a deleted
/// stack if agents are to remove it. Creates its project, too, if that was lost.
///
/// Blocks reports of held stacks until the transaction ends: an agent that reports later finds the stack.
pub async fn restore_stack_on_conn(
    conn: &mut PgConnection,
    stack: StackId,
    reported: &ReportedStack,
    deleted: bool,
) -> Result<()> {
    sqlx::query("SELECT holds_request FROM installation FOR UPDATE")
        .run(&mut *conn, "block reports of held stacks")
        .await?;
    sqlx::query("INSERT INTO projects (name) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(&reported.project)
        .run(&mut *conn, "recreate the project")
        .await?;
    sqlx::query(
        "INSERT INTO stacks (project, id, name, deleted_at)
         VALUES ($1, $2, $3, CASE WHEN $4 THEN now() END)",
    )
    .bind(&reported.project)
    .bind(stack.0)
    .bind(&reported.stack_name)
    .bind(deleted)
    .run(&mut *conn, "recreate the stack")
    .await?;
    sqlx::query("UPDATE agent_holds SET project = $1 WHERE stack_id = $2")
        .bind(&reported.project)
        .bind(stack.0)
        .run(conn, "assign held stacks to their project")
        .await
}

/// Makes every agent with an unconfirmed claim to the stack an explicit target. Returns how many.
pub async fn restore_target_holders_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: StackId,
) -> Result<u64> {
    sqlx::query(
        "INSERT INTO stack_targets (project, stack_id, agent_id, kept_at)
         SELECT $1, $2, agent_id, now() FROM agent_holds WHERE stack_id = $2 AND NOT confirmed
         ON CONFLICT DO NOTHING",
    )
    .bind(project)
    .bind(stack.0)
    .affected(conn, "target the holders of the stack")
    .await
}

/// Confirms all claims to the stack, and notifies every replica of the agents that make them. Returns how many there are.
pub async fn restore_confirm_on_conn(conn: &mut PgConnection, project: &str, stack: StackId) -> Result<u64> {
    sqlx::query(
        "WITH confirmed AS (
             UPDATE agent_holds SET confirmed = true WHERE stack_id = $2 AND NOT confirmed RETURNING agent_id)
         INSERT INTO outbox (project, kind, key) SELECT $1, 'agent', agent_id FROM confirmed",
    )
    .bind(project)
    .bind(stack.0)
    .affected(conn, "confirm that agents hold the stack")
    .await
}
