//! Leases: a task that one replica owns at a time, by the database's clock.
//!
//! A lease alone fences nothing: its holder may be paused and wake up after another one took over. So each
//! takeover raises the token, and every transaction of a holder begins with [`lease_hold_on_conn`], which
//! fails for an old token and keeps others from taking over until the transaction has ended.

use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};

/// A lease with its fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: &'static str,
    pub token: i64,
}

/// Takes the lease if it is free, expired, or already held by `holder`. Returns none while another replica holds it.
pub async fn lease_take_on_conn(
    conn: &mut PgConnection,
    name: &'static str,
    holder: Uuid,
    seconds: f64,
) -> Result<Option<Lease>> {
    let token: Option<i64> = sqlx::query_scalar(
        "INSERT INTO leases AS l (name, holder, token, expires_at)
         VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
         ON CONFLICT (name) DO UPDATE SET
            token = CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp()
                         THEN l.token ELSE l.token + 1 END,
            holder = excluded.holder, expires_at = excluded.expires_at
         WHERE l.holder = excluded.holder OR l.expires_at <= clock_timestamp()
         RETURNING token",
    )
    .bind(name)
    .bind(holder)
    .bind(seconds)
    .optional(conn, "take the lease")
    .await?;
    Ok(token.map(|token| Lease { name, token }))
}

/// Fences a transaction: has to be the first statement of every transaction of the holder. Returns false if
/// another replica took over; the caller then rolls back. Otherwise it extends the lease, and no replica
/// takes over before the transaction ends.
pub async fn lease_hold_on_conn(conn: &mut PgConnection, lease: Lease, seconds: f64) -> Result<bool> {
    Ok(lease_hold_at_on_conn(conn, lease, seconds).await?.is_some())
}

/// Like [`lease_hold_on_conn`], and returns the time of the database: the clocks of the replicas may differ.
pub async fn lease_hold_at_on_conn(
    conn: &mut PgConnection,
    lease: Lease,
    seconds: f64,
) -> Result<Option<Timestamp>> {
    sqlx::query(
        "UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $3)
         WHERE name = $1 AND token = $2 RETURNING clock_timestamp() AS now",
    )
    .bind(lease.name)
    .bind(lease.token)
    .bind(seconds)
    .try_map(|row: PgRow| row.time("now"))
    .optional(conn, "hold the lease")
    .await
}

/// Releases the lease, so that the next replica does not have to wait for its expiry.
pub async fn lease_release_on_conn(conn: &mut PgConnection, lease: Lease) -> Result<()> {
    sqlx::query("UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1 AND token = $2")
        .bind(lease.name)
        .bind(lease.token)
        .run(conn, "release the lease")
        .await
}
