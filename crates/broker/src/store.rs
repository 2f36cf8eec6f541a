//! All SQL: one file per noun, noun-first names. Functions that end in `_on_conn` run inside the caller's
//! transaction. Rows never leave this folder: functions return API types or domain facts.

pub mod agent_keys;
pub mod agent_retirement;
pub mod agents;
pub mod api_tokens;
pub mod audit;
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

/// How the broker talks to PostgreSQL: an open write transaction stalls every replica's outbox tail, so
/// nothing may stay open for long.
const SESSION: [(&str, &str); 3] =
    [("statement_timeout", "30s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "10s")];

/// By what PostgreSQL knows the sessions of brokers.
pub const APPLICATION: &str = "brokkr-broker";

/// How long a connection that is given back may take to answer.
const SILENT: Duration = Duration::from_secs(5);

/// Reads the address of the database.
pub fn connect_options(url: &str) -> Result<PgConnectOptions> {
    PgConnectOptions::from_str(url).doing("read the address of the database")
}

/// The pool of a serving broker.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let options = connect_options(url)?.application_name(APPLICATION).options(SESSION);
    PgPoolOptions::new()
        .max_connections(connections)
        // Load shedding: a request without a connection by then is refused and may be retried.
        .acquire_timeout(Duration::from_secs(3))
        .idle_timeout(Duration::from_secs(300))
        // A request that was given up may leave a connection to a server that no longer says anything. Asked without a
        // limit whether it is still good, it would take its place in the pool for as long as the kernel hopes.
        .after_release(|connection, _| {
            Box::pin(async move {
                match tokio::time::timeout(SILENT, connection.ping()).await {
                    Ok(answered) => answered.map(|()| true),
                    Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
                }
            })
        })
        .connect_with(options)
        .await
        .doing("connect to the database")
}

/// A digest as it is stored. The column is checked to hold 32 bytes.
fn checksum(bytes: &[u8]) -> Checksum {
    let mut digest = [0u8; 32];
    digest.copy_from_slice(&bytes[..32]);
    Checksum(digest)
}

/// A value of a column that a CHECK or this program's own writing keeps readable.
fn known<T: std::str::FromStr>(text: &str) -> Result<T, sqlx::Error> {
    text.parse().map_err(|_| sqlx::Error::Decode(format!("{text:?} is not a known value").into()))
}
