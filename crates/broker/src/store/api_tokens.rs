//! API tokens of people and machines, stored as hashes.

use brokkr_api::TokenId;
use brokkr_api::tokens::{Role, WhoAmI};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Doing as _, StoreError, known};

/// A new token; its secret is known to nobody but whoever made it.
#[derive(Clone, Debug)]
pub struct NewApiToken<'a> {
    pub project: &'a str,
    pub id: TokenId,
    pub name: &'a str,
    pub role: Role,
    pub hash: &'a [u8],
    pub expires_at: Option<Timestamp>,
}

pub async fn api_token_insert_on_conn(
    connection: &mut PgConnection,
    token: NewApiToken<'_>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO api_tokens (project, id, name, role, hash, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(token.project)
    .bind(token.id.0)
    .bind(token.name)
    .bind(token.role.to_string())
    .bind(token.hash)
    .bind(token.expires_at.map(|at| at.to_sqlx()))
    .execute(connection)
    .await
    .map(|_| ())
    .doing("insert the API token")
}

/// Who a token is, if it has not expired.
pub async fn api_token_find(pool: &PgPool, hash: &[u8]) -> Result<Option<WhoAmI>, StoreError> {
    type Row = (String, Uuid, String, String, Option<jiff_sqlx::Timestamp>);
    let row: Option<Row> = sqlx::query_as(
        "SELECT project, id, name, role, expires_at FROM api_tokens
         WHERE hash = $1 AND (expires_at IS NULL OR expires_at > now())",
    )
    .bind(hash)
    .fetch_optional(pool)
    .await
    .doing("find the API token")?;
    row.map(|(project, id, name, role, expires_at)| {
        Ok(WhoAmI {
            token_id: TokenId(id),
            name,
            project,
            role: known(&role)?,
            expires_at: expires_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    })
    .transpose()
    .doing("find the API token")
}

/// Whether an admin token exists, with the table locked against another one being made meanwhile.
pub async fn api_token_admin_exists_on_conn(connection: &mut PgConnection) -> Result<bool, StoreError> {
    sqlx::query("LOCK TABLE api_tokens IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *connection)
        .await
        .doing("lock the API tokens")?;
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM api_tokens WHERE role = 'admin')")
        .fetch_one(connection)
        .await
        .doing("look for an admin token")
}
