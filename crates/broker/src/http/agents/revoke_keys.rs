//! Locks an agent out: every key of it ends.

use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::agents::Agent;

use super::change::{find, finish};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agent_keys::agent_keys_revoke_on_conn;

/// Revoke every key of an agent: whoever has them is refused by all replicas within a second, also where it
/// waits. Its cluster is left as it is. It comes back with a join token made for it.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}/keys", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn revoke_keys(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let nobodys = nobodys_key()?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let found = find(&mut write, &agent).await?;
    agent_keys_revoke_on_conn(write.conn(), found.id, &nobodys).await?;
    tracing::warn!(agent_id = %found.id, agent = %found.name, "agent revoked");
    finish(write, &found).await
}

/// A public key that nobody has the other half of.
pub(super) fn nobodys_key() -> Result<[u8; 32], ApiError> {
    let mut key = [0u8; 32];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|error| ApiError::new(ErrorCode::BRK9001, "there is no randomness").because(error))?;
    Ok(key)
}
