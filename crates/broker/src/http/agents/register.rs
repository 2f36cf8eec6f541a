//! Registration of an agent: with a join token and the public half of a key that never leaves its cluster.

use axum::extract::{Path, State};
use brokkr_api::agents::{RegisterAgent, RegisteredAgent, RejoinAgent};
use brokkr_api::names::{BadName, DEFAULT_PROJECT};
use brokkr_api::tokens::JoinToken;
use brokkr_api::{AgentId, ErrorCode, Name};
use http::StatusCode;
use subtle::ConstantTimeEq as _;

use crate::access::key_proof::verify_registration;
use crate::access::secret::{Secret, SecretKind};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::join_tokens::{expiry, finish_join_token};
use crate::http::write::{self, ResultStorage};
use crate::store::agent_keys::agent_keys_rejoin_on_conn;
use crate::store::agents::{AgentRef, agent_fetch, agent_insert_on_conn};
use crate::store::join_tokens::{join_token_lock_on_conn, join_token_use_on_conn};
use crate::store::outbox::OutboxNotification;

/// Register an agent with a join token.
///
/// The key signs the registration. Repeating the request with the same token and key returns the same result until the token expires, so that a lost
/// response does not lock the agent out.
#[utoipa::path(post, path = "/api/v1/agents/register", tag = "agents", request_body = RegisterAgent,
    responses((status = 200, body = RegisteredAgent)))]
pub async fn register_agent(State(broker): BrokerState, change: Change) -> ApiResult {
    let request: RegisterAgent = change.json()?;
    let refused = |why: &str| ApiError::new(ErrorCode::BRK1003, format!("the join token {why}"));
    let public_key = verify_registration(&request)?;
    let secret = Secret::read(SecretKind::JoinToken, &request.token)
        .ok_or_else(|| refused("is malformed: its checksum does not match"))?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let token = join_token_lock_on_conn(write.conn(), &secret.hash()).await?;
        let token = token.ok_or_else(|| refused("is unknown, revoked or expired"))?;
        let agent_id = match token.used {
            Some((key, agent)) if bool::from(key.ct_eq(&public_key[..])) => agent,
            Some(_) => return Err(refused("was used with another key")),
            None if let Some(agent) = token.rejoins => {
                agent_keys_rejoin_on_conn(write.conn(), agent, &public_key).await?;
                join_token_use_on_conn(write.conn(), token.id, &public_key, agent).await?;
                tracing::info!(agent_id = %agent, agent = token.agent_name, "agent rejoined");
                agent
            }
            None => {
                let agent = AgentId::generate();
                let inserted =
                    agent_insert_on_conn(write.conn(), agent, &token.agent_name, &token.labels, &public_key)
                        .await;
                match inserted {
                    Err(error) if error.is_taken() => {
                        let detail = format!("agent {} already exists", token.agent_name);
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
        let bad_name =
            |error: BadName| ApiError::new(ErrorCode::BRK9001, "a stored name is invalid").because(error);
        let name: Name = token.agent_name.parse().map_err(bad_name)?;
        let registered = RegisteredAgent { agent_id, name, installation_id: broker.installation };
        write.finish(StatusCode::OK, &registered).await
    })
    .await
}

/// Create a join token for an existing agent.
///
/// The process that uses it takes over the id, labels and targets of the agent with a new key; all earlier keys end
/// then.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/join-tokens", tag = "agents", request_body = RejoinAgent,
    params(("agent" = String, Path, description = "Name or id")), responses((status = 201, body = JoinToken)))]
pub async fn rejoin_agent(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    change: Change,
) -> ApiResult {
    let request: RejoinAgent = change.json_or_default()?;
    let expires_at = expiry(request.ttl_seconds)?;
    write::run(&broker, &change, ResultStorage::Encrypted, async |mut write| {
        let agent = agent_fetch(write.conn(), &AgentRef::read(&agent)).await?;
        let agent = agent.ok_or_else(|| ApiError::not_found("agent"))?;
        finish_join_token(write, agent.name, agent.labels, Some(agent.id), expires_at).await
    })
    .await
}
