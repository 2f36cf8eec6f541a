//! A new agent joins: a join token, and the public half of a key that never leaves its cluster.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::agents::{RegisterAgent, RegisteredAgent};
use brokkr_api::names::{BadName, DEFAULT_PROJECT};
use brokkr_api::{AgentId, ErrorCode, Name};
use http::StatusCode;
use subtle::ConstantTimeEq as _;

use crate::access::secret::{Secret, SecretKind};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agent_keys::agent_keys_rejoin_on_conn;
use crate::store::agents::agent_insert_on_conn;
use crate::store::join_tokens::{join_token_lock_on_conn, join_token_use_on_conn};
use crate::store::outbox::OutboxNotification;

/// An Ed25519 public key as it travels.
pub fn read_public_key(text: &str) -> Result<Vec<u8>, ApiError> {
    let key = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    if key.len() == 32 {
        Ok(key)
    } else {
        Err(ApiError::unreadable("public_key is 32 bytes in base64url without padding"))
    }
}

/// Register an agent with a join token. The same token with the same key answers the same until the token
/// expires, so that a lost answer strands nobody.
#[utoipa::path(post, path = "/api/v1/agents/register", tag = "agents", request_body = RegisterAgent,
    responses((status = 200, body = RegisteredAgent)))]
pub async fn register_agent(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let asked: RegisterAgent = change.json()?;
    let refused = |why: &str| ApiError::new(ErrorCode::BRK1003, format!("the join token {why}"));
    let public_key = read_public_key(&asked.public_key)?;
    let secret = Secret::read(SecretKind::JoinToken, &asked.token)
        .ok_or_else(|| refused("is damaged: its checksum does not fit"))?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let token = join_token_lock_on_conn(write.conn(), &secret.hash()).await?;
    let token = token.ok_or_else(|| refused("is unknown, revoked or expired"))?;
    let agent_id = match token.used {
        Some((key, agent)) if bool::from(key.ct_eq(&public_key)) => agent,
        Some(_) => return Err(refused("was used by another key")),
        None if let Some(agent) = token.rejoins => {
            agent_keys_rejoin_on_conn(write.conn(), agent, &public_key).await?;
            join_token_use_on_conn(write.conn(), token.id, &public_key, agent).await?;
            tracing::info!(agent_id = %agent, agent = token.agent_name, "agent joined again");
            agent
        }
        None => {
            let agent = AgentId::generate();
            let inserted =
                agent_insert_on_conn(write.conn(), agent, &token.agent_name, &token.labels, &public_key)
                    .await;
            match inserted {
                Err(error) if error.is_taken() => {
                    let detail = format!("there is an agent called {} already", token.agent_name);
                    return Err(ApiError::new(ErrorCode::BRK2002, detail));
                }
                inserted => inserted?,
            }
            join_token_use_on_conn(write.conn(), token.id, &public_key, agent).await?;
            tracing::info!(agent_id = %agent, agent = token.agent_name, "agent joined");
            agent
        }
    };
    write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent_id)).await?;
    let bad_name = |error: BadName| ApiError::new(ErrorCode::BRK9001, "a stored name is bad").because(error);
    let name: Name = token.agent_name.parse().map_err(bad_name)?;
    let registered = RegisteredAgent { agent_id, name, installation_id: broker.installation };
    write.finish(StatusCode::OK, &registered).await
}
