//! API tokens of users and machines, stored as hashes. A revoked token stays listed for a while.

use std::collections::BTreeSet;

use brokkr_api::TokenId;
use brokkr_api::tokens::{ApiToken, Role, WhoAmI};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};

use super::{Columns as _, Fetch as _, Result, Run as _};

/// A new token; only the caller knows its secret.
#[derive(Clone, Debug)]
pub struct NewApiToken<'a> {
    pub project: &'a str,
    pub id: TokenId,
    pub name: &'a str,
    pub role: Role,
    pub hash: &'a [u8],
    pub created_by: Option<&'a str>,
    pub expires_at: Option<Timestamp>,
}

fn read_token(row: PgRow) -> Result<ApiToken, sqlx::Error> {
    Ok(ApiToken {
        id: TokenId(row.field("id")?),
        project: row.field("project")?,
        name: row.field("name")?,
        role: row.known("role")?,
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        expires_at: row.time_opt("expires_at")?,
        revoked_at: row.time_opt("revoked_at")?,
    })
}

pub async fn api_token_insert_on_conn(conn: &mut PgConnection, token: NewApiToken<'_>) -> Result<ApiToken> {
    sqlx::query(
        "INSERT INTO api_tokens (project, id, name, role, hash, created_by, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         RETURNING project, id, name, role, created_by, created_at, expires_at, revoked_at",
    )
    .bind(token.project)
    .bind(token.id.0)
    .bind(token.name)
    .bind(token.role.to_string())
    .bind(token.hash)
    .bind(token.created_by)
    .bind(token.expires_at.map(|at| at.to_sqlx()))
    .try_map(read_token)
    .one(conn, "insert the API token")
    .await
}

/// Returns the identity of a token that was not revoked. The caller checks the expiry, because the result may be cached.
pub async fn api_token_find(pool: &PgPool, hash: &[u8]) -> Result<Option<WhoAmI>> {
    sqlx::query(
        "SELECT project, id, name, role, expires_at FROM api_tokens WHERE hash = $1 AND revoked_at IS NULL",
    )
    .bind(hash)
    .try_map(|row| {
        Ok(WhoAmI {
            token_id: TokenId(row.field("id")?),
            name: row.field("name")?,
            project: row.field("project")?,
            role: row.known("role")?,
            expires_at: row.time_opt("expires_at")?,
            server_version: String::new(),
        })
    })
    .optional(pool, "find the API token")
    .await
}

/// Returns the names and roles of the tokens with these names that are valid in the project.
pub async fn api_tokens_valid_on_conn(
    conn: &mut PgConnection,
    project: &str,
    names: &BTreeSet<String>,
) -> Result<Vec<(String, Role)>> {
    sqlx::query(
        "SELECT name, role FROM api_tokens
         WHERE name = ANY($2) AND (project = $1 OR role = 'admin') AND revoked_at IS NULL
           AND (expires_at IS NULL OR expires_at > now())",
    )
    .bind(project)
    .bind(names.iter().collect::<Vec<_>>())
    .try_map(|row| Ok((row.field("name")?, row.known("role")?)))
    .all(conn, "read which tokens are valid")
    .await
}

/// The tokens that a caller sees: those of a project, and those of the installation if included.
#[derive(Clone, Copy, Debug)]
pub struct TokenScope<'a> {
    pub project: &'a str,
    pub over_installation: bool,
}

/// Returns up to `limit` tokens, oldest first, plus one if there are more. Ids are ordered by time.
pub async fn api_token_list(
    pool: &PgPool,
    scope: TokenScope<'_>,
    after: Option<TokenId>,
    limit: usize,
) -> Result<Vec<ApiToken>> {
    sqlx::query(
        "SELECT project, id, name, role, created_by, created_at, expires_at, revoked_at FROM api_tokens
         WHERE project = $1 AND ($2 OR role NOT IN ('admin', 'auditor')) AND ($3::uuid IS NULL OR id > $3)
         ORDER BY id LIMIT $4",
    )
    .bind(scope.project)
    .bind(scope.over_installation)
    .bind(after.map(|id| id.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_token)
    .all(pool, "list the API tokens")
    .await
}

pub async fn api_token_fetch(pool: &PgPool, scope: TokenScope<'_>, id: TokenId) -> Result<Option<ApiToken>> {
    sqlx::query(
        "SELECT project, id, name, role, created_by, created_at, expires_at, revoked_at FROM api_tokens
         WHERE project = $1 AND ($2 OR role NOT IN ('admin', 'auditor')) AND id = $3",
    )
    .bind(scope.project)
    .bind(scope.over_installation)
    .bind(id.0)
    .try_map(read_token)
    .optional(pool, "read the API token")
    .await
}

/// Locks a token; returns it and the time of the transaction.
pub async fn api_token_lock_on_conn(
    conn: &mut PgConnection,
    scope: TokenScope<'_>,
    id: TokenId,
) -> Result<Option<(ApiToken, Timestamp)>> {
    sqlx::query(
        "SELECT project, id, name, role, created_by, created_at, expires_at, revoked_at, now() FROM api_tokens
         WHERE project = $1 AND ($2 OR role NOT IN ('admin', 'auditor')) AND id = $3 FOR UPDATE",
    )
    .bind(scope.project)
    .bind(scope.over_installation)
    .bind(id.0)
    .try_map(|row| {
        let now = row.time("now")?;
        Ok((read_token(row)?, now))
    })
    .optional(conn, "lock the API token")
    .await
}

/// Makes a token expire at this time, unless it expires sooner anyway; returns the token and its hash.
pub async fn api_token_end_on_conn(
    conn: &mut PgConnection,
    project: &str,
    id: TokenId,
    at: Timestamp,
) -> Result<(ApiToken, Vec<u8>)> {
    sqlx::query(
        "UPDATE api_tokens SET expires_at = least(expires_at, $3) WHERE project = $1 AND id = $2
         RETURNING project, id, name, role, created_by, created_at, expires_at, revoked_at, hash",
    )
    .bind(project)
    .bind(id.0)
    .bind(at.to_sqlx())
    .try_map(|row| {
        let hash = row.field("hash")?;
        Ok((read_token(row)?, hash))
    })
    .one(conn, "expire the API token")
    .await
}

/// Revokes a token and returns its hash. A token that was revoked before is not changed.
pub async fn api_token_revoke_on_conn(
    conn: &mut PgConnection,
    scope: TokenScope<'_>,
    id: TokenId,
) -> Result<Option<Vec<u8>>> {
    sqlx::query_scalar(
        "UPDATE api_tokens SET revoked_at = coalesce(revoked_at, now())
         WHERE project = $1 AND ($2 OR role NOT IN ('admin', 'auditor')) AND id = $3
         RETURNING hash",
    )
    .bind(scope.project)
    .bind(scope.over_installation)
    .bind(id.0)
    .optional(conn, "revoke the API token")
    .await
}

/// Returns whether a valid admin token exists. Locks the table, so that none is created before the
/// transaction ends.
pub async fn api_token_admin_exists_on_conn(conn: &mut PgConnection) -> Result<bool> {
    sqlx::query("LOCK TABLE api_tokens IN SHARE ROW EXCLUSIVE MODE")
        .run(&mut *conn, "lock the API tokens")
        .await?;
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM api_tokens WHERE role = 'admin' AND revoked_at IS NULL
                        AND (expires_at IS NULL OR expires_at > now()))",
    )
    .one(conn, "find an admin token")
    .await
}

/// Deletes tokens that expired or were revoked at least this many seconds ago.
pub async fn api_token_delete_expired(pool: &PgPool, seconds: f64) -> Result<u64> {
    sqlx::query(
        "DELETE FROM api_tokens WHERE least(expires_at, revoked_at) < now() - make_interval(secs => $1)",
    )
    .bind(seconds)
    .affected(pool, "delete expired API tokens")
    .await
}
