//! Registration of an agent: with a join token and the public half of a key that never leaves its cluster.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::agents::{RegisterAgent, RegisteredAgent, RejoinAgent};
use brokkr_api::names::{BadName, DEFAULT_PROJECT};
use brokkr_api::tokens::JoinToken;
use brokkr_api::{AgentId, ErrorCode, Name, TokenId};
use http::StatusCode;
use subtle::ConstantTimeEq as _;

use crate::access::secret::{Secret, SecretKind};
use crate::error::ApiError;
use crate::http::change::Change;
use crate::http::join_tokens::expiry;
use crate::http::write::{self, Keep};
use crate::state::Broker;
use crate::store::agent_keys::agent_keys_rejoin_on_conn;
use crate::store::agents::{AgentRef, agent_fetch, agent_insert_on_conn};
use crate::store::join_tokens::{
    NewJoinToken, join_token_insert_on_conn, join_token_lock_on_conn, join_token_use_on_conn,
};
use crate::store::outbox::Doorbell;

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
    write::run(&broker, &change, Keep::Plain, async |mut write| {
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
        write.ring(DEFAULT_PROJECT, Doorbell::Agent(agent_id)).await?;
        let bad_name =
            |error: BadName| ApiError::new(ErrorCode::BRK9001, "a stored name is bad").because(error);
        let name: Name = token.agent_name.parse().map_err(bad_name)?;
        let registered = RegisteredAgent { agent_id, name, installation_id: broker.installation };
        write.finish(StatusCode::OK, &registered).await
    })
    .await
}

/// Make a join token for an agent that exists. Whoever uses it takes over its id, labels and targets with a new
/// key; every other key of it ends then.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/join-tokens", tag = "agents", request_body = RejoinAgent,
    params(("agent" = String, Path, description = "Name or id")), responses((status = 201, body = JoinToken)))]
pub async fn rejoin_agent(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: RejoinAgent = change.json_or_default()?;
    let expires_at = expiry(wanted.ttl_seconds)?;
    write::run(&broker, &change, Keep::Sealed, async |mut write| {
        let agent = agent_fetch(write.conn(), &AgentRef::read(&agent)).await?;
        let agent = agent.ok_or_else(|| ApiError::not_found("agent"))?;
        let secret = Secret::generate(SecretKind::JoinToken);
        let token = JoinToken {
            id: TokenId::generate(),
            token: secret.expose().to_owned(),
            agent_name: agent.name,
            labels: agent.labels,
            expires_at,
        };
        let stored = NewJoinToken {
            id: token.id,
            hash: &secret.hash(),
            agent_name: token.agent_name.as_str(),
            labels: &token.labels,
            rejoins: Some(agent.id),
            expires_at,
        };
        join_token_insert_on_conn(write.conn(), stored).await?;
        write.finish(StatusCode::CREATED, &token).await
    })
    .await
}
