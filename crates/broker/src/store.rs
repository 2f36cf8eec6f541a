//! All SQL: one file per noun, noun-first names. Functions that end in `_on_conn` run inside the caller's
//! transaction. Rows never leave this folder: functions return API types or domain facts.

pub mod agent_keys;
pub mod agent_retirement;
pub mod agent_upgrades;
pub mod agents;
pub mod alerts;
pub mod api_tokens;
pub mod audit;
pub mod audit_partitions;
pub mod barred_contents;
mod connection;
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
pub mod health_rules;
pub mod history_marks;
pub mod holds;
pub mod hops;
pub mod idempotency_keys;
pub mod installation;
pub mod join_tokens;
pub mod leases;
pub mod outbox;
pub mod outcomes;
pub mod partitions;
pub mod presence;
pub mod privileges;
pub mod projects;
pub mod prune_approvals;
pub mod reasons;
pub mod restore;
pub mod rollout_decisions;
pub mod rollout_policies;
pub mod rollouts;
pub mod schema;
pub mod sessions;
pub mod stack_status;
pub mod stack_targets;
pub mod stacks;
mod statement;
pub mod status_counts;
pub mod suspensions;
pub mod task_claims;
pub mod webhook_alarms;
pub mod webhook_deliveries;
pub mod webhook_notices;
pub mod webhooks;
pub mod widenings;
pub mod windows;

use brokkr_api::ids::Checksum;

pub use connection::{APPLICATION, connect, connect_options, pools_transactions};
pub use copy::CopyConnection;
pub use error::{Doing, Result, StoreError};
use statement::{Columns, Fetch, Run};

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
