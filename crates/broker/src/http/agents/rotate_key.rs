//! An agent changes its key. Who it is comes from the channel; the body has only the key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::agents::{RotateKey, RotatedKey};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use super::register::read_public_key;
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agent_keys::{agent_keys_lock_on_conn, agent_keys_rotate_on_conn};
use crate::store::outbox::OutboxNotification;

/// Register a new key. It counts from now on, and the one that signed this is good for another hour. The same
/// key again answers the same, so that a lost answer strands nobody.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/keys", tag = "agents", request_body = RotateKey,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = RotatedKey)))]
pub async fn rotate_key(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let asked: RotateKey = change.json()?;
    let agent = change.caller()?.agent()?;
    let public_key = read_public_key(&asked.public_key)?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let keys = agent_keys_lock_on_conn(write.conn(), agent.id).await?;
    let keys = keys.ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"))?;
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
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
        tracing::info!(agent_id = %agent.id, "agent changed its key");
        Some(until)
    };
    let rotated = RotatedKey { public_key: asked.public_key, old_key_until };
    write.finish(StatusCode::OK, &rotated).await
}
