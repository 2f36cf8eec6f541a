//! Keys of agents: rotated by the agent, requested or revoked by an admin.

use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Agent, RotateKey, RotatedKey};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use crate::error::ApiError;
use crate::http::agents::register::read_public_key;
use crate::http::agents::{find, finish};
use crate::http::change::Change;
use crate::http::write::{self, Keep};
use crate::state::Broker;
use crate::store::agent_keys::{
    agent_keys_ask_on_conn, agent_keys_lock_on_conn, agent_keys_revoke_on_conn, agent_keys_rotate_on_conn,
};
use crate::store::outbox::Doorbell;

/// Register a new key. It counts from now on, and the one that signed this is good for another hour. The same
/// key again answers the same, so that a lost answer strands nobody.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/keys", tag = "agents", request_body = RotateKey,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = RotatedKey)))]
pub async fn rotate_key(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let asked: RotateKey = change.json()?;
    let agent = change.caller()?.agent()?;
    let public_key = read_public_key(&asked.public_key)?;
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let keys = agent_keys_lock_on_conn(write.conn(), agent.id).await?;
        let keys =
            keys.ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"))?;
        let old_key_until = if keys.public_key == public_key {
            keys.old_key_until
        } else if keys.public_key[..] != agent.signed_with[..] {
            // An old key proves who somebody is, for a while. It does not replace the one that came after it.
            return Err(ApiError::new(
                ErrorCode::BRK1009,
                "another key was registered after the one that signed",
            ));
        } else if keys.old_public_key.as_ref() == Some(&public_key) {
            return Err(ApiError::unreadable("this key was replaced already: make a new one"));
        } else {
            let until = agent_keys_rotate_on_conn(write.conn(), agent.id, &public_key).await?;
            write.noting(Some(Checksum::of(&keys.public_key)), Some(Checksum::of(&public_key)));
            write.ring(DEFAULT_PROJECT, Doorbell::Agent(agent.id)).await?;
            tracing::info!(agent_id = %agent.id, "agent changed its key");
            Some(until)
        };
        let rotated = RotatedKey { public_key: asked.public_key, old_key_until };
        write.finish(StatusCode::OK, &rotated).await
    })
    .await
}

/// Ask an agent for a new key. It makes one in its cluster, and registers it with the one that it has; that one is then good
/// for another hour. Until it has done so, `rotation_asked_at` is there. An agent whose keys were revoked is not asked.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/rotation", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn ask_for_key(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        agent_keys_ask_on_conn(write.conn(), found.id).await?;
        tracing::info!(agent_id = %found.id, agent = %found.name, "agent is asked for a new key");
        finish(write, &found).await
    })
    .await
}

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
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        agent_keys_revoke_on_conn(write.conn(), found.id, &nobodys).await?;
        tracing::warn!(agent_id = %found.id, agent = %found.name, "agent revoked");
        finish(write, &found).await
    })
    .await
}

/// A public key that nobody has the other half of.
pub(super) fn nobodys_key() -> Result<[u8; 32], ApiError> {
    let mut key = [0u8; 32];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|error| ApiError::new(ErrorCode::BRK9001, "there is no randomness").because(error))?;
    Ok(key)
}
