//! All SQL: one file per noun, noun-first names. Functions that end in `_on_conn` run inside the caller's
//! transaction. Rows never leave this folder: functions return API types or domain facts.

pub mod agent_keys;
pub mod agent_retirement;
pub mod agents;
pub mod api_tokens;
pub mod audit;
pub mod audit_partitions;
pub mod barred_contents;
pub mod content_retention;
mod copy;
pub mod deployment_objects;
mod error;
pub mod events;
pub mod facts;
pub mod failures;
pub mod fingerprints;
pub mod fleet;
pub mod grants;
pub mod holds;
pub mod hops;
pub mod idempotency_keys;
pub mod installation;
pub mod join_tokens;
pub mod leases;
pub mod outbox;
pub mod partitions;
pub mod presence;
pub mod projects;
pub mod prune_approvals;
pub mod reasons;
pub mod restore;
pub mod schema;
pub mod stack_status;
pub mod stack_targets;
pub mod stacks;
mod statement;
pub mod status_counts;
pub mod task_claims;
pub mod webhook_alarms;
pub mod webhook_deliveries;
pub mod webhook_notices;
pub mod webhooks;

use std::str::FromStr as _;
use std::time::Duration;

use brokkr_api::ids::Checksum;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool};

pub use error::{Doing, Result, StoreError};
use statement::{Columns, Fetch, Run};

/// Timeouts of the broker's sessions: an open write transaction stalls every replica's outbox tail, so
/// nothing may stay open for long.
const SESSION: [(&str, &str); 3] =
    [("statement_timeout", "30s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "10s")];

/// The name of the broker's sessions in `pg_stat_activity`.
pub const APPLICATION: &str = "brokkr-broker";

/// How long a connection that returns to the pool may take to respond to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Parses the URL of the database.
pub fn connect_options(url: &str) -> Result<PgConnectOptions> {
    PgConnectOptions::from_str(url).doing("read the address of the database")
}

/// Connects a pool to the database.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let options = connect_options(url)?.application_name(APPLICATION).options(SESSION);
    PgPoolOptions::new()
        .max_connections(connections)
        // Load shedding: a request that gets no connection within this time is refused and may be retried.
        .acquire_timeout(Duration::from_secs(3))
        .idle_timeout(Duration::from_secs(300))
        // A cancelled request may leave a connection to a server that no longer responds. Without a timeout,
        // the ping would occupy a place in the pool until TCP gives up.
        .after_release(|connection, _| {
            Box::pin(async move {
                match tokio::time::timeout(PING_TIMEOUT, connection.ping()).await {
                    Ok(answered) => answered.map(|()| true),
                    Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
                }
            })
        })
        .connect_with(options)
        .await
        .doing("connect to the database")
}

/// Reads a stored digest. A CHECK ensures that the column has 32 bytes.
fn checksum(bytes: &[u8]) -> Checksum {
    let mut digest = [0u8; 32];
    digest.copy_from_slice(&bytes[..32]);
    Checksum(digest)
}

/// Parses a column that has only known values, because of a CHECK or because only the broker writes it.
fn known<T: std::str::FromStr>(text: &str) -> Result<T, sqlx::Error> {
    text.parse().map_err(|_| sqlx::Error::Decode(format!("{text:?} is not a known value").into()))
}
