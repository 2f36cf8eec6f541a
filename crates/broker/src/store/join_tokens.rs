//! Join tokens: one use, bound to a name and labels, stored as hashes.

use brokkr_api::{AgentId, Labels, TokenId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Doing as _, StoreError};

/// A join token that is still valid.
#[derive(Clone, Debug)]
pub struct StoredJoinToken {
    pub id: TokenId,
    pub agent_name: String,
    pub labels: Labels,
    /// The key and agent that used it.
    pub used: Option<(Vec<u8>, AgentId)>,
}

pub async fn join_token_insert_on_conn(
    connection: &mut PgConnection,
    id: TokenId,
    hash: &[u8],
    agent_name: &str,
    labels: &Labels,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO join_tokens (id, hash, agent_name, labels, expires_at) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(id.0)
    .bind(hash)
    .bind(agent_name)
    .bind(Json(labels))
    .bind(expires_at.to_sqlx())
    .execute(connection)
    .await
    .map(|_| ())
    .doing("insert the join token")
}

/// Finds a token that has not expired and locks it, so that of two uses at once one waits.
pub async fn join_token_lock_on_conn(
    connection: &mut PgConnection,
    hash: &[u8],
) -> Result<Option<StoredJoinToken>, StoreError> {
    type Row = (Uuid, String, Json<Labels>, Option<Vec<u8>>, Option<Uuid>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT id, agent_name, labels, used_by_key, agent_id FROM join_tokens
         WHERE hash = $1 AND expires_at > now() FOR UPDATE",
    )
    .bind(hash)
    .fetch_optional(connection)
    .await
    .doing("find the join token")?;
    Ok(row.map(|(id, agent_name, labels, key, agent)| StoredJoinToken {
        id: TokenId(id),
        agent_name,
        labels: labels.0,
        used: key.zip(agent.map(AgentId)),
    }))
}

pub async fn join_token_use_on_conn(
    connection: &mut PgConnection,
    id: TokenId,
    public_key: &[u8],
    agent: AgentId,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE join_tokens SET used_by_key = $2, agent_id = $3 WHERE id = $1")
        .bind(id.0)
        .bind(public_key)
        .bind(agent.0)
        .execute(connection)
        .await
        .map(|_| ())
        .doing("mark the join token as used")
}
