//! Join tokens: one use, bound to a name and labels, stored as hashes.

use brokkr_api::tokens::{JoinToken, JoinTokenInfo};
use brokkr_api::{AgentId, Labels, TokenId};
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};

/// A join token that is still valid.
#[derive(Clone, Debug)]
pub struct StoredJoinToken {
    pub id: TokenId,
    pub agent_name: String,
    pub labels: Labels,
    /// The existing agent that gets a new key by this token; none if a new agent joins.
    pub rejoins: Option<AgentId>,
    /// The key and the agent that the token was used for.
    pub used: Option<(Vec<u8>, AgentId)>,
}

pub async fn join_token_insert_on_conn(
    conn: &mut PgConnection,
    token: &JoinToken,
    hash: &[u8],
    rejoins: Option<AgentId>,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO join_tokens (id, hash, agent_name, labels, rejoins, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(token.id.0)
    .bind(hash)
    .bind(token.agent_name.as_str())
    .bind(Json(&token.labels))
    .bind(rejoins.map(|agent| agent.0))
    .bind(token.expires_at.to_sqlx())
    .run(conn, "insert the join token")
    .await
}

/// Finds and locks a token that has neither expired nor been revoked. Of two concurrent uses, the second waits.
pub async fn join_token_lock_on_conn(
    conn: &mut PgConnection,
    hash: &[u8],
) -> Result<Option<StoredJoinToken>> {
    type Row = (Uuid, String, Json<Labels>, Option<Uuid>, Option<Vec<u8>>, Option<Uuid>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT id, agent_name, labels, rejoins, used_by_key, agent_id FROM join_tokens
         WHERE hash = $1 AND expires_at > now() AND revoked_at IS NULL FOR UPDATE",
    )
    .bind(hash)
    .optional(conn, "find the join token")
    .await?;
    Ok(row.map(|(id, agent_name, labels, rejoins, key, agent)| StoredJoinToken {
        id: TokenId(id),
        agent_name,
        labels: labels.0,
        rejoins: rejoins.map(AgentId),
        used: key.zip(agent.map(AgentId)),
    }))
}

pub async fn join_token_use_on_conn(
    conn: &mut PgConnection,
    id: TokenId,
    public_key: &[u8],
    agent: AgentId,
) -> Result<()> {
    sqlx::query("UPDATE join_tokens SET used_by_key = $2, agent_id = $3 WHERE id = $1")
        .bind(id.0)
        .bind(public_key)
        .bind(agent.0)
        .run(conn, "mark the join token as used")
        .await
}

fn read_join_token(row: PgRow) -> Result<JoinTokenInfo, sqlx::Error> {
    Ok(JoinTokenInfo {
        id: TokenId(row.field("id")?),
        agent_name: row.field("agent_name")?,
        labels: row.json("labels")?,
        rejoins: row.field::<Option<Uuid>>("rejoins")?.map(AgentId),
        used_by: row.field::<Option<Uuid>>("agent_id")?.map(AgentId),
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
        revoked_at: row.time_opt("revoked_at")?,
    })
}

/// Returns up to `limit` tokens, oldest first, plus one if there are more. Ids are ordered by time.
pub async fn join_token_list(
    pool: &PgPool,
    after: Option<TokenId>,
    limit: usize,
) -> Result<Vec<JoinTokenInfo>> {
    sqlx::query(
        "SELECT id, agent_name, labels, rejoins, agent_id, created_at, expires_at, revoked_at FROM join_tokens
         WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after.map(|id| id.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_join_token)
    .all(pool, "list the join tokens")
    .await
}

/// Revokes a token. An agent that has used it is not affected.
pub async fn join_token_revoke_on_conn(conn: &mut PgConnection, id: TokenId) -> Result<bool> {
    sqlx::query("UPDATE join_tokens SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1")
        .bind(id.0)
        .affected(conn, "revoke the join token")
        .await
        .map(|rows| rows == 1)
}

/// Deletes tokens that expired this long ago, whether or not they were revoked.
pub async fn join_token_delete_expired(pool: &PgPool, seconds: f64) -> Result<u64> {
    sqlx::query("DELETE FROM join_tokens WHERE expires_at < now() - make_interval(secs => $1)")
        .bind(seconds)
        .affected(pool, "delete expired join tokens")
        .await
}
