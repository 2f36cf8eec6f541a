//! Agents: joining, changing, sessions, presence.

use brokkr_api::agents::{Agent, AgentPatch, AgentStatus, OpenSession, SessionVerdict};
use brokkr_api::{AgentId, InstanceId, Labels};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::{Doing as _, StoreError, known};
use crate::domain::facts::SessionFacts;

/// How a caller names an agent.
#[derive(Clone, Debug)]
pub enum AgentRef {
    Id(AgentId),
    Name(String),
}

impl AgentRef {
    /// What looks like an id is one; names that look like ids are never given out.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

#[derive(sqlx::FromRow)]
struct AgentRow {
    id: Uuid,
    name: String,
    status: String,
    labels: Json<Labels>,
    annotations: Json<Labels>,
    created_at: jiff_sqlx::Timestamp,
    last_seen_at: Option<jiff_sqlx::Timestamp>,
    session_count: i64,
    session_tied: bool,
    revoked_at: Option<jiff_sqlx::Timestamp>,
}

impl AgentRow {
    fn agent(self) -> Result<Agent, sqlx::Error> {
        Ok(Agent {
            id: AgentId(self.id),
            name: known(&self.name)?,
            status: known(&self.status)?,
            labels: self.labels.0,
            annotations: self.annotations.0,
            created_at: self.created_at.to_jiff(),
            last_seen_at: self.last_seen_at.map(jiff_sqlx::Timestamp::to_jiff),
            session_count: self.session_count,
            session_tied: self.session_tied,
            revoked_at: self.revoked_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    }
}

macro_rules! agent_columns {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, status, labels, annotations, created_at, last_seen_at, session_count, session_tied, revoked_at
             FROM agents ",
            $rest
        )
    };
}

pub async fn agent_fetch(
    executor: impl PgExecutor<'_>,
    agent: &AgentRef,
) -> Result<Option<Agent>, StoreError> {
    let query = match agent {
        AgentRef::Id(id) => sqlx::query_as::<_, AgentRow>(agent_columns!("WHERE id = $1")).bind(id.0),
        AgentRef::Name(name) => sqlx::query_as::<_, AgentRow>(agent_columns!("WHERE name = $1")).bind(name),
    };
    let row = query.fetch_optional(executor).await.doing("read the agent")?;
    row.map(AgentRow::agent).transpose().doing("read the agent")
}

/// A page of agents in the order of their names, one more than `limit` if there are more.
pub async fn agent_list(pool: &PgPool, after: Option<&str>, limit: usize) -> Result<Vec<Agent>, StoreError> {
    let rows: Vec<AgentRow> = sqlx::query_as(agent_columns!("WHERE name > $1 ORDER BY name LIMIT $2"))
        .bind(after.unwrap_or_default())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .fetch_all(pool)
        .await
        .doing("list the agents")?;
    rows.into_iter().map(AgentRow::agent).collect::<Result<_, _>>().doing("list the agents")
}

/// The named agents, in the order of their names.
pub async fn agent_list_of(pool: &PgPool, agents: &[AgentId]) -> Result<Vec<Agent>, StoreError> {
    let ids: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    let rows: Vec<AgentRow> = sqlx::query_as(agent_columns!("WHERE id = ANY($1) ORDER BY name"))
        .bind(ids)
        .fetch_all(pool)
        .await
        .doing("list the agents")?;
    rows.into_iter().map(AgentRow::agent).collect::<Result<_, _>>().doing("list the agents")
}

pub async fn agent_insert_on_conn(
    connection: &mut PgConnection,
    id: AgentId,
    name: &str,
    labels: &Labels,
    public_key: &[u8],
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO agents (id, name, status, labels, public_key) VALUES ($1, $2, $3, $4, $5)")
        .bind(id.0)
        .bind(name)
        .bind(AgentStatus::Active.to_string())
        .bind(Json(labels))
        .bind(public_key)
        .execute(connection)
        .await
        .map(|_| ())
        .doing("insert the agent")
}

/// Changes what is given. The time of the labels moves only if they really change.
pub async fn agent_patch_on_conn(
    connection: &mut PgConnection,
    agent: &AgentRef,
    patch: &AgentPatch,
) -> Result<Option<Agent>, StoreError> {
    let (id, name) = match agent {
        AgentRef::Id(id) => (Some(id.0), None),
        AgentRef::Name(name) => (None, Some(name)),
    };
    let row: Option<AgentRow> = sqlx::query_as(
        "UPDATE agents SET
            status = coalesce($3, status),
            labels_changed_at = CASE WHEN $4 IS DISTINCT FROM labels AND $4 IS NOT NULL
                                     THEN now() ELSE labels_changed_at END,
            labels = coalesce($4, labels),
            annotations = coalesce($5, annotations)
         WHERE id = $1 OR name = $2
         RETURNING id, name, status, labels, annotations, created_at, last_seen_at, session_count, session_tied, revoked_at",
    )
    .bind(id)
    .bind(name)
    .bind(patch.status.map(|status| status.to_string()))
    .bind(patch.labels.as_ref().map(Json))
    .bind(patch.annotations.as_ref().map(Json))
    .fetch_optional(connection)
    .await
    .doing("change the agent")?;
    row.map(AgentRow::agent).transpose().doing("change the agent")
}

/// Opens a session in one conditional statement: the highest count serves, a second process with the
/// same count ties with the first, a lower one changes nothing.
pub async fn agent_open_session_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
    session: OpenSession,
) -> Result<SessionVerdict, StoreError> {
    let tied: Option<bool> = sqlx::query_scalar(
        "UPDATE agents SET
            session_tied = session_count = $2
                           AND (session_tied OR (session_instance IS NOT NULL AND session_instance <> $3)),
            session_instance = CASE WHEN session_count = $2 THEN coalesce(session_instance, $3) ELSE $3 END,
            session_count = $2
         WHERE id = $1 AND session_count <= $2
         RETURNING session_tied",
    )
    .bind(agent.0)
    .bind(session.count)
    .bind(session.instance.0)
    .fetch_optional(connection)
    .await
    .doing("open the session")?;
    Ok(match tied {
        None => SessionVerdict::Superseded,
        Some(true) => SessionVerdict::Tied,
        Some(false) => SessionVerdict::Serves,
    })
}

/// Locks the agent's row and tells which session serves.
pub async fn agent_lock_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
) -> Result<Option<SessionFacts>, StoreError> {
    let row: Option<(i64, Option<Uuid>, bool)> = sqlx::query_as(
        "SELECT session_count, session_instance, session_tied FROM agents WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(agent.0)
    .fetch_optional(connection)
    .await
    .doing("lock the agent")?;
    Ok(row.map(|(count, instance, tied)| SessionFacts { count, instance: instance.map(InstanceId), tied }))
}
