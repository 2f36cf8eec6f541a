//! Idempotency keys: each keeps the first result of its request, stored in the transaction of that request.

use sqlx::{PgConnection, PgPool};

use super::{Fetch as _, Result, Run as _};

/// The owner of a key. Keys of different callers are independent.
#[derive(Clone, Debug)]
pub struct KeyOwner<'a> {
    pub project: &'a str,
    pub principal: &'a str,
    /// The hash of the key.
    pub key: &'a [u8],
}

/// The result that was stored.
#[derive(Clone, Debug)]
pub struct StoredResult {
    pub request_digest: Vec<u8>,
    pub status: u16,
    pub body: Vec<u8>,
    /// The transaction that stored it.
    pub xid: u64,
}

/// Claims the key. Of two concurrent requests, the second waits here until the first has ended.
pub async fn idempotency_key_claim_on_conn(
    conn: &mut PgConnection,
    owner: &KeyOwner<'_>,
    request_digest: &[u8],
) -> Result<bool> {
    sqlx::query(
        "INSERT INTO idempotency_keys (project, principal, key, request_digest) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
    )
    .bind(owner.project)
    .bind(owner.principal)
    .bind(owner.key)
    .bind(request_digest)
    .affected(conn, "claim the idempotency key")
    .await
    .map(|rows| rows == 1)
}

pub async fn idempotency_key_find(pool: &PgPool, owner: &KeyOwner<'_>) -> Result<Option<StoredResult>> {
    type Row = (Vec<u8>, Option<i16>, Option<Vec<u8>>, i64);
    let row: Option<Row> = sqlx::query_as(
        // After a dump and restore, transaction ids begin again: a position above them must never be issued.
        "SELECT request_digest, status, body,
                least(xid::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
         FROM idempotency_keys
         WHERE project = $1 AND principal = $2 AND key = $3",
    )
    .bind(owner.project)
    .bind(owner.principal)
    .bind(owner.key)
    .optional(pool, "find the idempotency key")
    .await?;
    Ok(row.and_then(|(request_digest, status, body, xid)| {
        let status = u16::try_from(status?).ok()?;
        Some(StoredResult { request_digest, status, body: body?, xid: xid.cast_unsigned() })
    }))
}

pub async fn idempotency_key_store_on_conn(
    conn: &mut PgConnection,
    owner: &KeyOwner<'_>,
    status: u16,
    body: &[u8],
) -> Result<()> {
    sqlx::query(
        "UPDATE idempotency_keys SET status = $4, body = $5 WHERE project = $1 AND principal = $2 AND key = $3",
    )
    .bind(owner.project)
    .bind(owner.principal)
    .bind(owner.key)
    .bind(status.cast_signed())
    .bind(body)
    .run(conn, "store the result under the idempotency key")
    .await
}

pub async fn idempotency_key_delete_old(pool: &PgPool, seconds: f64) -> Result<u64> {
    sqlx::query("DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1)")
        .bind(seconds)
        .affected(pool, "delete old idempotency keys")
        .await
}
