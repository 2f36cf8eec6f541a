//! Keys of agents: rotated by the agent, requested or revoked by an admin.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Agent, RotateKey, RotatedKey};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use crate::access::key_proof::{ProvenKeyChange, verify_key_change};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::{find, finish};
use crate::http::change::Change;
use crate::http::write::{self, ResultStorage};
use crate::store::agent_keys::{
    agent_keys_ask_on_conn, agent_keys_lock_on_conn, agent_keys_revoke_on_conn, agent_keys_rotate_on_conn,
};
use crate::store::outbox::OutboxNotification;

/// Rotate the key of an agent.
///
/// Both keys sign the change. The new key is valid at once; the old one stays valid for one hour. Sending the same key
/// again returns the same result, so that a lost response does not lock the agent out.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/keys", tag = "agents", request_body = RotateKey,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = RotatedKey)))]
pub async fn rotate_key(State(broker): BrokerState, change: Change) -> ApiResult {
    let request: RotateKey = change.json()?;
    let agent = change.caller()?.agent()?;
    let ProvenKeyChange { old_key, new_key } = verify_key_change(broker.installation, agent.id, &request)?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let keys = agent_keys_lock_on_conn(write.conn(), agent.id).await?;
        let keys =
            keys.ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"))?;
        let old_key_until = if keys.public_key[..] == new_key {
            // The response was lost, or the request is replayed: nothing changes.
            keys.old_key_until
        } else if keys.public_key[..] != old_key {
            // The previous key still authenticates for a while, but it must not replace the key that came after it. Nor
            // can an earlier change be replayed: the key that it replaces is no longer the current one.
            return Err(ApiError::new(
                ErrorCode::BRK1009,
                "the key that this request replaces is not the current one; a newer key is registered",
            ));
        } else if keys.old_public_key.as_deref() == Some(&new_key[..]) {
            return Err(ApiError::invalid_request("this key was already replaced; generate a new one"));
        } else {
            let until = agent_keys_rotate_on_conn(write.conn(), agent.id, &new_key).await?;
            write.audit_digests(Some(Checksum::of(&keys.public_key)), Some(Checksum::of(&new_key)));
            write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
            tracing::info!(agent_id = %agent.id, "agent key rotated");
            Some(until)
        };
        let rotated = RotatedKey { public_key: request.public_key, old_key_until };
        write.finish(StatusCode::OK, &rotated).await
    })
    .await
}

/// Request a key rotation.
///
/// The agent generates a new key in its cluster and registers it; its current key signs this and stays valid for one
/// hour. `rotation_asked_at` is set until the new key is registered. An agent with revoked keys is not asked.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/rotation", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn request_key_rotation(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    change: Change,
) -> ApiResult {
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        agent_keys_ask_on_conn(write.conn(), found.id).await?;
        tracing::info!(agent_id = %found.id, agent = %found.name, "agent key rotation requested");
        finish(write, &found).await
    })
    .await
}

/// Revoke every key of an agent.
///
/// All replicas refuse the keys within one second and end waiting polls. The cluster stays as it is. The agent
/// can return with a join token made for it.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}/keys", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn revoke_keys(State(broker): BrokerState, Path(agent): Path<String>, change: Change) -> ApiResult {
    let unusable = unusable_key()?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        agent_keys_revoke_on_conn(write.conn(), found.id, &unusable).await?;
        tracing::warn!(agent_id = %found.id, agent = %found.name, "agent keys revoked");
        finish(write, &found).await
    })
    .await
}

/// Generates a public key for which no private key exists.
pub(super) fn unusable_key() -> ApiResult<[u8; 32]> {
    let mut key = [0u8; 32];
    SystemRandom::new().fill(&mut key).map_err(|error| {
        ApiError::new(ErrorCode::BRK9001, "failed to generate random bytes").because(error)
    })?;
    Ok(key)
}
