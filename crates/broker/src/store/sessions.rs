//! Sessions of the console, stored as hashes. A session ends when it is not used for a while, after some hours at most, and with
//! the API token that it was opened with.

use brokkr_api::sessions::{ConsoleSession, IDLE_SESSION_SECONDS, LONGEST_SESSION_SECONDS};
use brokkr_api::{SessionId, TokenId};
use jiff::{SignedDuration, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};

/// A use is stored only if the last one that was stored is older than this.
const USE_STORED_AFTER: SignedDuration = SignedDuration::from_secs(60);
const IDLE: SignedDuration = SignedDuration::from_secs(IDLE_SESSION_SECONDS as i64);

/// A new session; only the browser knows its secret.
#[derive(Clone, Debug)]
pub struct NewSession<'a> {
    pub id: SessionId,
    pub hash: &'a [u8],
    /// The hash of the token that opens it.
    pub token_hash: &'a [u8],
}

/// What is needed to authenticate with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    pub id: SessionId,
    /// The hash of its token, which has to be valid, too.
    pub token_hash: [u8; 32],
    pub opened_at: Timestamp,
    /// When it ends unless it is used before.
    pub ends_at: Timestamp,
    /// Whether this use has to be stored.
    pub is_use_due: bool,
}

/// Names one session.
#[derive(Clone, Copy, Debug)]
pub enum SessionKey {
    Id(SessionId),
    Hash([u8; 32]),
}

impl SessionKey {
    fn columns(&self) -> (Option<Uuid>, Option<&[u8]>) {
        match self {
            Self::Id(id) => (Some(id.0), None),
            Self::Hash(hash) => (None, Some(&hash[..])),
        }
    }
}

/// Selects sessions that have not ended. The first parameter is how many seconds a session lasts without being used.
macro_rules! open_sessions {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.token_id, t.name, t.role, s.project, s.created_at, s.last_used_at,
                    least(s.expires_at, t.expires_at) AS expires_at
             FROM sessions s JOIN api_tokens t ON t.project = s.project AND t.id = s.token_id
             WHERE s.expires_at > now() AND s.last_used_at > now() - make_interval(secs => $1)
               AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now()) ",
            $rest
        )
    };
}

fn read_session(row: PgRow) -> Result<ConsoleSession, sqlx::Error> {
    let (last_used_at, expires_at): (Timestamp, Timestamp) =
        (row.time("last_used_at")?, row.time("expires_at")?);
    Ok(ConsoleSession {
        id: SessionId(row.field("id")?),
        token_id: TokenId(row.field("token_id")?),
        name: row.field("name")?,
        role: row.known("role")?,
        project: row.field("project")?,
        created_at: row.time("created_at")?,
        last_used_at,
        idle_at: expires_at.min(last_used_at + IDLE),
        expires_at,
    })
}

/// Opens a session, unless the token is no longer valid. Locks the token, so that its sessions can be counted.
pub async fn session_insert_on_conn(
    conn: &mut PgConnection,
    session: NewSession<'_>,
) -> Result<Option<ConsoleSession>> {
    sqlx::query(
        "WITH token AS (
            SELECT project, id, name, role, expires_at FROM api_tokens
            WHERE hash = $3 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
            FOR NO KEY UPDATE
         ), opened AS (
            INSERT INTO sessions (id, hash, project, token_id, expires_at)
            SELECT $1, $2, project, id, least(expires_at, now() + make_interval(secs => $4)) FROM token
            RETURNING id, created_at, last_used_at, expires_at
         )
         SELECT s.id, t.id AS token_id, t.name, t.role, t.project, s.created_at, s.last_used_at, s.expires_at
         FROM opened s CROSS JOIN token t",
    )
    .bind(session.id.0)
    .bind(session.hash)
    .bind(session.token_hash)
    .bind(f64::from(LONGEST_SESSION_SECONDS))
    .try_map(read_session)
    .optional(conn, "insert the session")
    .await
}

/// Deletes the sessions of the token that were not used for longest, except this one and the `keep` newest others.
pub async fn session_delete_surplus_on_conn(
    conn: &mut PgConnection,
    session: &ConsoleSession,
    keep: i64,
) -> Result<u64> {
    sqlx::query(
        "DELETE FROM sessions WHERE id IN (
            SELECT id FROM sessions WHERE project = $1 AND token_id = $2 AND id <> $3
            ORDER BY last_used_at DESC, id DESC OFFSET $4)",
    )
    .bind(&session.project)
    .bind(session.token_id.0)
    .bind(session.id.0)
    .bind(keep)
    .affected(conn, "delete sessions above the limit")
    .await
}

/// Returns a session that has not ended. The caller checks the token, and the end again, because the result may be cached.
pub async fn session_find(pool: &PgPool, hash: &[u8]) -> Result<Option<StoredSession>> {
    sqlx::query(
        "SELECT s.id, t.hash AS token_hash, s.created_at, s.last_used_at, s.expires_at, now() AS now
         FROM sessions s JOIN api_tokens t ON t.project = s.project AND t.id = s.token_id
         WHERE s.hash = $2 AND s.expires_at > now() AND s.last_used_at > now() - make_interval(secs => $1)
           AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())",
    )
    .bind(f64::from(IDLE_SESSION_SECONDS))
    .bind(hash)
    .try_map(|row| {
        let last_used_at = row.time("last_used_at")?;
        let token_hash: Vec<u8> = row.field("token_hash")?;
        Ok(StoredSession {
            id: SessionId(row.field("id")?),
            token_hash: token_hash
                .try_into()
                .map_err(|_| sqlx::Error::Decode("the hash of a token has 32 bytes".into()))?,
            opened_at: row.time("created_at")?,
            ends_at: row.time("expires_at")?.min(last_used_at + IDLE),
            is_use_due: row.time("now")?.duration_since(last_used_at) >= USE_STORED_AFTER,
        })
    })
    .optional(pool, "find the session")
    .await
}

/// Stores that the session is used now. Returns when it ends unless it is used again; none if it was closed meanwhile.
pub async fn session_use(pool: &PgPool, id: SessionId) -> Result<Option<Timestamp>> {
    sqlx::query("UPDATE sessions SET last_used_at = now() WHERE id = $1 RETURNING last_used_at, expires_at")
        .bind(id.0)
        .try_map(|row| Ok(row.time("expires_at")?.min(row.time("last_used_at")? + IDLE)))
        .optional(pool, "store the use of the session")
        .await
}

/// Returns up to `limit` sessions, oldest first, plus one if there are more; with a token, only its own.
pub async fn session_list(
    pool: &PgPool,
    of_token: Option<TokenId>,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<ConsoleSession>> {
    sqlx::query(open_sessions!(
        "AND ($2::uuid IS NULL OR s.token_id = $2) AND ($3::uuid IS NULL OR s.id > $3) ORDER BY s.id LIMIT $4"
    ))
    .bind(f64::from(IDLE_SESSION_SECONDS))
    .bind(of_token.map(|id| id.0))
    .bind(after.map(|id| id.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_session)
    .all(pool, "list the sessions")
    .await
}

/// Returns a session; with a token, only if it is one of its own.
pub async fn session_fetch(
    pool: &PgPool,
    of_token: Option<TokenId>,
    key: SessionKey,
) -> Result<Option<ConsoleSession>> {
    let (id, hash) = key.columns();
    sqlx::query(open_sessions!(
        "AND ($2::uuid IS NULL OR s.token_id = $2) AND (s.id = $3::uuid OR s.hash = $4::bytea)"
    ))
    .bind(f64::from(IDLE_SESSION_SECONDS))
    .bind(of_token.map(|id| id.0))
    .bind(id)
    .bind(hash)
    .try_map(read_session)
    .optional(pool, "read the session")
    .await
}

/// Deletes a session and returns its id and the hash of its secret; with a token, only one of its own.
pub async fn session_delete_on_conn(
    conn: &mut PgConnection,
    of_token: Option<TokenId>,
    key: SessionKey,
) -> Result<Option<(SessionId, Vec<u8>)>> {
    let (id, hash) = key.columns();
    let deleted: Option<(Uuid, Vec<u8>)> = sqlx::query_as(
        "DELETE FROM sessions
         WHERE ($1::uuid IS NULL OR token_id = $1) AND (id = $2::uuid OR hash = $3::bytea) RETURNING id, hash",
    )
    .bind(of_token.map(|id| id.0))
    .bind(id)
    .bind(hash)
    .optional(conn, "delete the session")
    .await?;
    Ok(deleted.map(|(id, hash)| (SessionId(id), hash)))
}

/// Deletes sessions that have ended.
pub async fn session_delete_ended(pool: &PgPool) -> Result<u64> {
    sqlx::query(
        "DELETE FROM sessions WHERE expires_at < now() OR last_used_at < now() - make_interval(secs => $1)",
    )
    .bind(f64::from(IDLE_SESSION_SECONDS))
    .affected(pool, "delete sessions that have ended")
    .await
}
