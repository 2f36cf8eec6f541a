//! Agents: joining, changing, sessions, presence.

use brokkr_api::agents::{
    Abandoned, Agent, AgentPatch, AgentStatus, OpenSession, OpenedSession, SessionVerdict,
};
use brokkr_api::page::Sort;
use brokkr_api::system::AgentVersion;
use brokkr_api::upgrades::ReportedUpgrade;
use brokkr_api::why::Presence;
use brokkr_api::{AgentId, InstanceId, Labels};
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::agent_upgrades::reports::last_upgrade;
use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::facts::SessionFacts;
use crate::domain::presence::{missed, presence};

/// The id or name of an agent.
#[derive(Clone, Debug)]
pub enum AgentRef {
    Id(AgentId),
    Name(String),
}

impl AgentRef {
    /// Parses an id or a name. A name never looks like an id.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

fn read_agent(row: PgRow) -> Result<Agent, sqlx::Error> {
    let (created_at, last_seen_at) = (row.time("created_at")?, row.time_opt("last_seen_at")?);
    let by: Option<String> = row.field("abandoned_by")?;
    let because: Option<String> = row.field("abandoned_because")?;
    Ok(Agent {
        id: AgentId(row.field("id")?),
        name: row.known("name")?,
        status: row.known("status")?,
        labels: row.json("labels")?,
        annotations: row.json("annotations")?,
        created_at,
        last_seen_at,
        presence: presence(last_seen_at, row.field::<i32>("poll_seconds")?.unsigned_abs(), Timestamp::now()),
        version: row.field("version")?,
        session_count: row.field("session_count")?,
        session_duplicated: row.field("session_duplicated")?,
        key_since: row.time_opt("key_since")?.or(Some(created_at)),
        rotation_asked_at: row.time_opt("rotation_asked_at")?,
        revoked_at: row.time_opt("revoked_at")?,
        abandoned: row.time_opt("abandoned_at")?.map(|at| Abandoned {
            at,
            by: by.unwrap_or_default(),
            because: because.unwrap_or_default(),
        }),
        upgrade: row.field::<Option<Json<ReportedUpgrade>>>("upgrade")?.map(|upgrade| upgrade.0),
    })
}

macro_rules! columns {
    () => {
        concat!(
            "id, name, status, labels, annotations, created_at, last_seen_at, poll_seconds, version, session_count,
             session_duplicated,
             key_since, rotation_asked_at, revoked_at, abandoned_at, abandoned_by, abandoned_because, ",
            last_upgrade!(),
            " AS upgrade"
        )
    };
}

macro_rules! agents {
    ($($rest:tt)*) => {
        concat!("SELECT ", columns!(), " FROM agents ", $($rest)*)
    };
}

/// Agents that missed at least $1 polls and fewer than $2. If both are NULL: agents that were never seen.
macro_rules! present {
    ($($rest:tt)*) => {
        concat!(
            "WHERE CASE WHEN $1::float8 IS NULL THEN last_seen_at IS NULL AND $2::float8 IS NULL
                        ELSE last_seen_at <= now() - make_interval(secs => poll_seconds * $1)
                             AND last_seen_at > now() - make_interval(secs => poll_seconds * $2) END ",
            $($rest)*
        )
    };
}

pub async fn agent_fetch(executor: impl PgExecutor<'_>, agent: &AgentRef) -> Result<Option<Agent>> {
    let query = match agent {
        AgentRef::Id(id) => sqlx::query(agents!("WHERE id = $1")).bind(id.0),
        AgentRef::Name(name) => sqlx::query(agents!("WHERE name = $1")).bind(name),
    };
    query.try_map(read_agent).optional(executor, "read the agent").await
}

/// Returns up to `most` agents of this presence after the cursor.
pub async fn agent_list_present(
    pool: &PgPool,
    presence: Presence,
    sort: Sort,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<Agent>> {
    let sql = match sort {
        Sort::Name => agents!(present!("AND ($3::text IS NULL OR name > $3) ORDER BY name LIMIT $4")),
        Sort::NameDown => {
            agents!(present!("AND ($3::text IS NULL OR name < $3) ORDER BY name DESC LIMIT $4"))
        }
        Sort::Created => agents!(present!("AND ($3::text IS NULL OR id > $3::uuid) ORDER BY id LIMIT $4")),
        Sort::CreatedDown => {
            agents!(present!("AND ($3::text IS NULL OR id < $3::uuid) ORDER BY id DESC LIMIT $4"))
        }
    };
    let (least, below) = missed(presence).unzip();
    sqlx::query(sql)
        .bind(least)
        .bind(below)
        .bind(after)
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .try_map(read_agent)
        .all(pool, "list the agents")
        .await
}

/// Returns the ids of all agents of this presence.
pub async fn agent_ids_present(pool: &PgPool, presence: Presence) -> Result<Vec<AgentId>> {
    let (least, below) = missed(presence).unzip();
    let ids: Vec<Uuid> = sqlx::query_scalar(concat!("SELECT id FROM agents ", present!("")))
        .bind(least)
        .bind(below)
        .all(pool, "count the agents")
        .await?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// Returns the number of agents per version, most frequent first.
pub async fn agent_versions(pool: &PgPool, most: i64) -> Result<Vec<AgentVersion>> {
    let rows: Vec<(Option<String>, i64)> = sqlx::query_as(
        "SELECT version, count(*) FROM agents WHERE revoked_at IS NULL
         GROUP BY version ORDER BY count(*) DESC, version LIMIT $1",
    )
    .bind(most)
    .all(pool, "count the agents of each version")
    .await?;
    Ok(rows
        .into_iter()
        .map(|(version, agents)| AgentVersion { version, agents: agents.cast_unsigned() })
        .collect())
}

/// Returns these agents, in the given order.
pub async fn agent_list_of(pool: &PgPool, agents: &[AgentId]) -> Result<Vec<Agent>> {
    let ids: Vec<Uuid> = agents.iter().map(|agent| agent.0).collect();
    sqlx::query(agents!(
        "JOIN unnest($1::uuid[]) WITH ORDINALITY AS asked (id, place) USING (id) ORDER BY place"
    ))
    .bind(ids)
    .try_map(read_agent)
    .all(pool, "list the agents")
    .await
}

pub async fn agent_insert_on_conn(
    conn: &mut PgConnection,
    id: AgentId,
    name: &str,
    labels: &Labels,
    public_key: &[u8],
) -> Result<()> {
    sqlx::query("INSERT INTO agents (id, name, status, labels, public_key) VALUES ($1, $2, $3, $4, $5)")
        .bind(id.0)
        .bind(name)
        .bind(AgentStatus::Active.to_string())
        .bind(Json(labels))
        .bind(public_key)
        .run(conn, "insert the agent")
        .await
}

/// Changes the given fields. `labels_changed_at` changes only if the labels do.
pub async fn agent_patch_on_conn(
    conn: &mut PgConnection,
    agent: &AgentRef,
    patch: &AgentPatch,
) -> Result<Option<Agent>> {
    let (id, name) = match agent {
        AgentRef::Id(id) => (Some(id.0), None),
        AgentRef::Name(name) => (None, Some(name)),
    };
    sqlx::query(concat!(
        "UPDATE agents SET
            status = coalesce($3, status),
            labels_changed_at = CASE WHEN $4 IS DISTINCT FROM labels AND $4 IS NOT NULL
                                     THEN now() ELSE labels_changed_at END,
            labels = coalesce($4, labels),
            annotations = coalesce($5, annotations)
         WHERE id = $1 OR name = $2
         RETURNING ",
        columns!(),
    ))
    .bind(id)
    .bind(name)
    .bind(patch.status.map(|status| status.to_string()))
    .bind(patch.labels.as_ref().map(Json))
    .bind(patch.annotations.as_ref().map(Json))
    .try_map(read_agent)
    .optional(conn, "change the agent")
    .await
}

/// Opens a session in one conditional statement: the highest count wins, a second process with the same count
/// makes the session a duplicate, a lower count changes nothing. Returns the verdict and the highest count.
///
/// An upgrade that was interrupted, or was not allowed, is offered again to a process of another version. A process that does not announce
/// that it allows upgrades may do so later, when it polls.
pub async fn agent_open_session_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    session: &OpenSession,
    version: Option<&str>,
    allows_upgrades: bool,
) -> Result<OpenedSession> {
    let (duplicated, count): (Option<bool>, i64) = sqlx::query_as(
        "WITH opened AS (UPDATE agents SET
            session_duplicated = session_count = $2
                AND (session_duplicated OR (session_instance IS NOT NULL AND session_instance <> $3)),
            session_instance = CASE WHEN session_count = $2 THEN coalesce(session_instance, $3) ELSE $3 END,
            session_count = $2,
            version = coalesce($4, version),
            namespace = coalesce($5, namespace),
            upgradable_since = CASE WHEN $6 THEN coalesce(upgradable_since, now()) ELSE upgradable_since END,
            upgrade_id = CASE WHEN upgrade_id IS NULL OR EXISTS (
                SELECT FROM agent_upgrade_reports r JOIN agent_upgrades u ON u.id = r.upgrade_id
                WHERE r.upgrade_id = agents.upgrade_id AND r.agent_id = agents.id AND r.offered_again
                  AND u.version IS DISTINCT FROM $4) THEN NULL ELSE upgrade_id END
         WHERE id = $1 AND session_count <= $2
         RETURNING session_duplicated)
         SELECT (SELECT session_duplicated FROM opened), greatest(session_count, $2) FROM agents WHERE id = $1",
    )
    .bind(agent.0)
    .bind(session.count)
    .bind(session.instance.0)
    .bind(version)
    .bind(&session.namespace)
    .bind(allows_upgrades)
    .one(conn, "open the session")
    .await?;
    let verdict = match duplicated {
        None => SessionVerdict::Superseded,
        Some(true) => SessionVerdict::Duplicated,
        Some(false) => SessionVerdict::Serves,
    };
    Ok(OpenedSession { verdict, count })
}

/// An agent, and its own namespace in its cluster.
pub type AgentNamespace = (AgentId, String);

/// Returns the agents with one of these namespaces. Nothing can be submitted into the default namespace of agents, so agents
/// there are left out. Agents cannot claim system namespaces, because everybody uses them.
pub async fn agents_by_namespace(pool: &PgPool, namespaces: &[String]) -> Result<Vec<AgentNamespace>> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT id, namespace FROM agents WHERE namespace <> 'brokkr-system' AND namespace = ANY($1)
         AND namespace NOT IN ('default', 'kube-system', 'kube-public', 'kube-node-lease') AND revoked_at IS NULL",
    )
    .bind(namespaces)
    .all(pool, "find agents by namespace")
    .await?;
    Ok(rows.into_iter().map(|(id, namespace)| (AgentId(id), namespace)).collect())
}

/// Locks the agent's row and returns its current session.
pub async fn agent_lock_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<Option<SessionFacts>> {
    let row: Option<(i64, Option<Uuid>, bool)> = sqlx::query_as(
        "SELECT session_count, session_instance, session_duplicated FROM agents
         WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(agent.0)
    .optional(conn, "lock the agent")
    .await?;
    Ok(row.map(|(count, instance, duplicated)| SessionFacts {
        count,
        instance: instance.map(InstanceId),
        duplicated,
    }))
}
