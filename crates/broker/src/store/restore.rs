//! What a restore left: who has still to tell what it holds, who is ahead, what is missing, which contents are wanted.

use std::collections::{HashMap, HashSet};

use brokkr_api::ids::Checksum;
use brokkr_api::system::{Holder, UnsettledStack, WantedContent, Wish};
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::deployment_objects::deployment_object_fetch_many;
use super::stacks::StackRef;
use super::{Doing as _, StoreError, checksum, known};

/// Agents that have not answered since all were last asked.
pub async fn restore_agents_to_tell(pool: &PgPool) -> Result<HashSet<AgentId>, StoreError> {
    let ids: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM agents WHERE told < (SELECT asked FROM installation)")
            .fetch_all(pool)
            .await
            .doing("read who has to tell what it holds")?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// Agents of which a content is wanted.
pub async fn restore_agents_wanted(pool: &PgPool) -> Result<HashSet<AgentId>, StoreError> {
    let ids: Vec<Uuid> = sqlx::query_scalar("SELECT agent_id FROM content_wishes WHERE refused IS NULL")
        .fetch_all(pool)
        .await
        .doing("read whose contents are wanted")?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Agents have a newer version than the database.
    Ahead,
    /// The database does not know the stack.
    Unknown,
}

const AHEAD: &str = "EXISTS (SELECT FROM stacks s WHERE s.id = h.stack_id
                             AND h.sequence_id > coalesce(s.newest_sequence_id, 0))";
const UNKNOWN: &str = "NOT EXISTS (SELECT FROM stacks s WHERE s.id = h.stack_id)";

impl Sort {
    fn condition(self) -> &'static str {
        match self {
            Self::Ahead => AHEAD,
            Self::Unknown => UNKNOWN,
        }
    }
}

/// What the agent says it has of these stacks, where that is newer than everything in the database.
pub async fn restore_ahead_of(
    pool: &PgPool,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<StackId, SequenceId>, StoreError> {
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT h.stack_id, h.sequence_id FROM agent_holds h
         WHERE h.agent_id = $1 AND h.stack_id = ANY($2) AND {AHEAD}"
    )))
    .bind(agent.0)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await
    .doing("read where the agent is ahead")?;
    Ok(rows.into_iter().map(|(stack, sequence)| (StackId(stack), SequenceId(sequence))).collect())
}

/// How much is left to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct RestoreCounts {
    pub to_tell: i64,
    pub ahead: i64,
    pub unknown: i64,
    pub kept: i64,
}

pub async fn restore_count(pool: &PgPool) -> Result<RestoreCounts, StoreError> {
    sqlx::query_as(AssertSqlSafe(format!(
        "SELECT (SELECT count(*) FROM agents WHERE told < (SELECT asked FROM installation)) AS to_tell,
                (SELECT count(DISTINCT h.stack_id) FROM agent_holds h WHERE {AHEAD}) AS ahead,
                (SELECT count(DISTINCT h.stack_id) FROM agent_holds h WHERE {UNKNOWN}) AS unknown,
                (SELECT count(*) FROM stack_targets WHERE kept_at IS NOT NULL) AS kept"
    )))
    .fetch_one(pool)
    .await
    .doing("count what is left to settle")
}

/// Holders of a stack that are shown.
const SHOWN: i64 = 100;

#[derive(sqlx::FromRow)]
struct HolderRow {
    stack_id: Uuid,
    agents: i64,
    agent_id: Uuid,
    agent_name: String,
    sequence_id: Option<i64>,
    checksum: Option<Vec<u8>>,
    removing: bool,
    project: String,
    stack_name: Option<String>,
    newest: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct WishRow {
    stack_id: Uuid,
    agent_name: String,
    wanted_at: jiff_sqlx::Timestamp,
    refused: Option<String>,
}

/// A page of what is to be settled, in the order of stack ids, one more than `limit` if there are more.
pub async fn restore_list(
    pool: &PgPool,
    sort: Sort,
    after: Option<StackId>,
    limit: usize,
) -> Result<Vec<UnsettledStack>, StoreError> {
    let condition = sort.condition();
    let rows: Vec<HolderRow> = sqlx::query_as(AssertSqlSafe(format!(
        "WITH page AS (
             SELECT h.stack_id, count(*) AS agents FROM agent_holds h
             WHERE ($1::uuid IS NULL OR h.stack_id > $1) AND {condition}
             GROUP BY h.stack_id ORDER BY h.stack_id LIMIT $2
         )
         SELECT * FROM (
             SELECT h.stack_id, page.agents, h.agent_id, a.name AS agent_name, h.sequence_id, h.checksum,
                    coalesce(h.removing, false) AS removing,
                    coalesce(s.project, h.told_project, h.project) AS project,
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
    .fetch_all(pool)
    .await
    .doing("list what is left to settle")?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.stack_id).collect();
    let wishes: Vec<WishRow> = sqlx::query_as(
        "SELECT w.stack_id, a.name AS agent_name, w.wanted_at, w.refused
         FROM content_wishes w JOIN agents a ON a.id = w.agent_id WHERE w.stack_id = ANY($1)",
    )
    .bind(&ids)
    .fetch_all(pool)
    .await
    .doing("list which contents are wanted")?;
    let newest: Vec<i64> = rows.iter().filter_map(|row| row.newest).collect();
    let restored = deployment_object_fetch_many(pool, &newest).await?;
    let mut stacks: Vec<UnsettledStack> = Vec::new();
    for row in rows {
        if stacks.last().is_none_or(|stack| stack.stack_id.0 != row.stack_id) {
            let wish = wishes.iter().find(|wish| wish.stack_id == row.stack_id);
            stacks.push(UnsettledStack {
                project: row.project.clone(),
                stack_id: StackId(row.stack_id),
                stack_name: row.stack_name.clone().unwrap_or_default(),
                restored: restored.iter().find(|object| Some(object.sequence_id.0) == row.newest).cloned(),
                agent_count: row.agents.cast_unsigned(),
                agents: Vec::new(),
                wish: wish.map(WishRow::wish).transpose().doing("read a wanted content")?,
            });
        }
        if let Some(stack) = stacks.last_mut() {
            stack.agents.push(row.holder().doing("read who holds a stack")?);
        }
    }
    Ok(stacks)
}

impl HolderRow {
    fn holder(self) -> Result<Holder, sqlx::Error> {
        Ok(Holder {
            agent_id: AgentId(self.agent_id),
            agent_name: known(&self.agent_name)?,
            sequence_id: self.sequence_id.map(SequenceId),
            checksum: self.checksum.as_deref().map(checksum),
            removing: self.removing,
        })
    }
}

impl WishRow {
    fn wish(&self) -> Result<Wish, sqlx::Error> {
        Ok(Wish {
            agent_name: known(&self.agent_name)?,
            wanted_at: self.wanted_at.to_jiff(),
            refused: self.refused.clone(),
        })
    }
}

/// Every stack of that id or name in one of the two lists: its id, and its project if the database knows it.
pub async fn restore_find_on_conn(
    connection: &mut PgConnection,
    project: &str,
    stack: &StackRef,
) -> Result<Vec<(StackId, Option<String>)>, StoreError> {
    let (id, name) = match stack {
        StackRef::Id(id) => (Some(id.0), None),
        StackRef::Name(name) => (None, Some(name)),
    };
    let rows: Vec<(Uuid, Option<String>)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT DISTINCT h.stack_id, s.project
         FROM agent_holds h LEFT JOIN stacks s ON s.id = h.stack_id
         WHERE (h.stack_id = $1 OR coalesce(s.name, h.stack_name) = $2
                                   AND coalesce(s.project, h.told_project) = $3)
           AND ({AHEAD} OR {UNKNOWN})"
    )))
    .bind(id)
    .bind(name)
    .bind(project)
    .fetch_all(connection)
    .await
    .doing("find what is to be settled")?;
    Ok(rows.into_iter().map(|(id, project)| (StackId(id), project)).collect())
}

/// What one agent told of one stack.
#[derive(Clone, Debug)]
pub struct Told {
    pub sequence_id: SequenceId,
    pub checksum: Option<Checksum>,
    pub removing: bool,
    pub project: String,
    pub stack_name: String,
}

/// What the agent, or with none the one with the newest version, told of the stack.
pub async fn restore_told_on_conn(
    connection: &mut PgConnection,
    stack: StackId,
    agent: Option<AgentId>,
) -> Result<Option<Told>, StoreError> {
    type Row = (i64, Option<Vec<u8>>, bool, String, String);
    let row: Option<Row> = sqlx::query_as(
        "SELECT sequence_id, checksum, removing, told_project, stack_name FROM agent_holds
         WHERE stack_id = $1 AND ($2::uuid IS NULL OR agent_id = $2) AND sequence_id IS NOT NULL
         ORDER BY sequence_id DESC LIMIT 1",
    )
    .bind(stack.0)
    .bind(agent.map(|agent| agent.0))
    .fetch_optional(connection)
    .await
    .doing("read what the agent told")?;
    Ok(row.map(|(sequence, digest, removing, project, stack_name)| Told {
        sequence_id: SequenceId(sequence),
        checksum: digest.as_deref().map(checksum),
        removing,
        project,
        stack_name,
    }))
}

/// Asks an agent for a content; a newer wish for the same stack replaces the older one.
pub async fn restore_wish_on_conn(
    connection: &mut PgConnection,
    stack: StackId,
    agent: AgentId,
    told: &Told,
    digest: Checksum,
    by: &str,
) -> Result<(), StoreError> {
    restore_project_on_conn(connection, &told.project).await?;
    sqlx::query(
        "INSERT INTO content_wishes (stack_id, agent_id, project, sequence_id, checksum, wanted_by)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (stack_id) DO UPDATE SET agent_id = $2, project = $3, sequence_id = $4, checksum = $5,
             wanted_by = $6, wanted_at = now(), refused = NULL",
    )
    .bind(stack.0)
    .bind(agent.0)
    .bind(&told.project)
    .bind(told.sequence_id.0)
    .bind(&digest.0[..])
    .bind(by)
    .execute(connection)
    .await
    .map(|_| ())
    .doing("ask for a content")
}

/// The project of a lost stack may have been lost with it.
async fn restore_project_on_conn(connection: &mut PgConnection, project: &str) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO projects (name) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(project)
        .execute(connection)
        .await
        .map(|_| ())
        .doing("make the project again")
}

/// What is wanted of an agent.
pub async fn restore_wanted_of(pool: &PgPool, agent: AgentId) -> Result<Vec<WantedContent>, StoreError> {
    let rows: Vec<(Uuid, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT stack_id, sequence_id, checksum FROM content_wishes
         WHERE agent_id = $1 AND refused IS NULL ORDER BY stack_id LIMIT 500",
    )
    .bind(agent.0)
    .fetch_all(pool)
    .await
    .doing("read what is wanted of the agent")?;
    let read = |(stack, sequence, digest): (Uuid, i64, Vec<u8>)| WantedContent {
        stack_id: StackId(stack),
        sequence_id: SequenceId(sequence),
        checksum: checksum(&digest),
    };
    Ok(rows.into_iter().map(read).collect())
}

/// A wish that is being fulfilled; its row is gone when the transaction ends.
#[derive(Clone, Debug)]
pub struct Fulfilled {
    pub project: String,
    pub checksum: Checksum,
    pub wanted_by: String,
}

pub async fn restore_fulfil_on_conn(
    connection: &mut PgConnection,
    stack: StackId,
    agent: AgentId,
) -> Result<Option<Fulfilled>, StoreError> {
    let row: Option<(String, Vec<u8>, String)> = sqlx::query_as(
        "DELETE FROM content_wishes WHERE stack_id = $1 AND agent_id = $2 AND refused IS NULL
         RETURNING project, checksum, wanted_by",
    )
    .bind(stack.0)
    .bind(agent.0)
    .fetch_optional(connection)
    .await
    .doing("take a wanted content in")?;
    Ok(row.map(|(project, digest, wanted_by)| Fulfilled { project, checksum: checksum(&digest), wanted_by }))
}

/// The agent does not have it.
pub async fn restore_refuse_on_conn(
    connection: &mut PgConnection,
    stack: StackId,
    agent: AgentId,
    why: &str,
) -> Result<bool, StoreError> {
    sqlx::query("UPDATE content_wishes SET refused = $3 WHERE stack_id = $1 AND agent_id = $2")
        .bind(stack.0)
        .bind(agent.0)
        .bind(why)
        .execute(connection)
        .await
        .map(|done| done.rows_affected() == 1)
        .doing("note that a content is not to be had")
}

/// Makes a lost stack again, under its id, with everybody who holds it as a target. With `deleted`, without a target: all who hold
/// it are to remove it.
///
/// Nobody tells what it holds meanwhile: whoever tells afterwards finds the stack, and keeps itself as a target.
pub async fn restore_stack_on_conn(
    connection: &mut PgConnection,
    project: &str,
    stack: StackId,
    name: &str,
    deleted: bool,
) -> Result<(), StoreError> {
    sqlx::query("SELECT asked FROM installation FOR UPDATE")
        .execute(&mut *connection)
        .await
        .doing("let nobody tell what it holds")?;
    restore_project_on_conn(connection, project).await?;
    sqlx::query(
        "INSERT INTO stacks (project, id, name, deleted_at)
         VALUES ($1, $2, $3, CASE WHEN $4 THEN now() END)",
    )
    .bind(project)
    .bind(stack.0)
    .bind(name)
    .bind(deleted)
    .execute(&mut *connection)
    .await
    .doing("make the stack again")?;
    sqlx::query("UPDATE agent_holds SET project = $1 WHERE stack_id = $2")
        .bind(project)
        .bind(stack.0)
        .execute(&mut *connection)
        .await
        .doing("give held stacks their project again")?;
    if deleted {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO stack_targets (project, stack_id, agent_id, kept_at)
         SELECT $1, $2, agent_id, now() FROM agent_holds WHERE stack_id = $2",
    )
    .bind(project)
    .bind(stack.0)
    .execute(connection)
    .await
    .map(|_| ())
    .doing("keep who holds the stack as its targets")
}
