//! The keys of agents: the current one, the previous one for a while, and their revocation.

use std::sync::Arc;

use brokkr_api::AgentId;
use jiff::Timestamp;
use sqlx::{PgConnection, PgPool};

use super::{Fetch as _, Result, Run as _};

/// How long the previous key stays valid.
pub const OVERLAP_SECONDS: f64 = 3600.0;

/// A key and the end of its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentKey {
    pub key: Arc<[u8]>,
    pub until: Option<Timestamp>,
}

/// The keys of an agent, with its row locked.
#[derive(Clone, Debug)]
pub struct LockedKeys {
    pub public_key: Vec<u8>,
    pub old_public_key: Option<Vec<u8>>,
    pub old_key_until: Option<Timestamp>,
}

/// Returns the keys with which the agent may sign now; none if it was revoked.
pub async fn agent_keys_fetch(pool: &PgPool, agent: AgentId) -> Result<Vec<AgentKey>> {
    type Row = (Vec<u8>, Option<Vec<u8>>, Option<jiff_sqlx::Timestamp>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT public_key, CASE WHEN old_key_until > now() THEN old_public_key END, old_key_until
         FROM agents WHERE id = $1 AND revoked_at IS NULL",
    )
    .bind(agent.0)
    .optional(pool, "read the agent's keys")
    .await?;
    Ok(row.map_or_else(Vec::new, |(key, old, until)| {
        let until = until.map(jiff_sqlx::Timestamp::to_jiff);
        let old = old.map(|key| AgentKey { key: Arc::from(key), until });
        std::iter::once(AgentKey { key: Arc::from(key), until: None }).chain(old).collect()
    }))
}

/// Locks the agent's row and returns its keys. None if it does not exist or was revoked.
pub async fn agent_keys_lock_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<Option<LockedKeys>> {
    type Row = (Vec<u8>, Option<Vec<u8>>, Option<jiff_sqlx::Timestamp>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT public_key, old_public_key, old_key_until FROM agents
         WHERE id = $1 AND revoked_at IS NULL FOR NO KEY UPDATE",
    )
    .bind(agent.0)
    .optional(conn, "lock the agent's keys")
    .await?;
    Ok(row.map(|(public_key, old_public_key, until)| LockedKeys {
        public_key,
        old_public_key,
        old_key_until: until.map(jiff_sqlx::Timestamp::to_jiff),
    }))
}

/// Makes `public_key` the current key; the previous one stays valid for a while.
pub async fn agent_keys_rotate_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    public_key: &[u8],
) -> Result<Timestamp> {
    let until: jiff_sqlx::Timestamp = sqlx::query_scalar(
        "UPDATE agents SET old_public_key = public_key, public_key = $2, key_since = now(), rotation_asked_at = NULL,
                old_key_until = date_trunc('second', now()) + make_interval(secs => $3)
         WHERE id = $1 RETURNING old_key_until",
    )
    .bind(agent.0)
    .bind(public_key)
    .bind(OVERLAP_SECONDS)
    .one(conn, "change the agent's key")
    .await?;
    Ok(until.to_jiff())
}

/// Requests a key rotation. A repeated request keeps the time of the first one; a revoked agent is skipped.
pub async fn agent_keys_ask_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<()> {
    sqlx::query(
        "UPDATE agents SET rotation_asked_at = coalesce(rotation_asked_at, now())
         WHERE id = $1 AND revoked_at IS NULL",
    )
    .bind(agent.0)
    .run(conn, "request a key rotation")
    .await
}

/// Revokes every key of the agent. The current key becomes a random one that no one has, so that every replica refuses
/// the agent once it applies the change. Join tokens for the agent are revoked, too.
pub async fn agent_keys_revoke_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    unusable: &[u8],
) -> Result<()> {
    let doing = "revoke the agent's keys";
    sqlx::query(
        "UPDATE agents SET revoked_at = now(), public_key = $2, old_public_key = NULL, old_key_until = NULL,
                rotation_asked_at = NULL
         WHERE id = $1 AND revoked_at IS NULL",
    )
    .bind(agent.0)
    .bind(unusable)
    .run(&mut *conn, doing)
    .await?;
    sqlx::query("UPDATE join_tokens SET revoked_at = now() WHERE rejoins = $1 AND revoked_at IS NULL")
        .bind(agent.0)
        .run(conn, doing)
        .await
}

/// Registers a new key for an existing agent. The agent may have been reinstalled, so its session count
/// restarts. This is safe, because earlier processes no longer have a valid key. If the agent was abandoned,
/// it no longer is.
pub async fn agent_keys_rejoin_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    public_key: &[u8],
) -> Result<()> {
    sqlx::query(
        "UPDATE agents SET revoked_at = NULL, public_key = $2, old_public_key = NULL, old_key_until = NULL,
                key_since = now(), rotation_asked_at = NULL,
                session_count = 0, session_instance = NULL, session_duplicated = false,
                status = CASE WHEN abandoned_at IS NULL THEN status ELSE 'ACTIVE' END,
                abandoned_at = NULL, abandoned_by = NULL, abandoned_because = NULL
         WHERE id = $1",
    )
    .bind(agent.0)
    .bind(public_key)
    .run(conn, "register the agent again")
    .await
}
