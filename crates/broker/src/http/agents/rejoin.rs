//! Makes a join token for an agent that exists: after it was revoked, or lost its key.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::TokenId;
use brokkr_api::agents::RejoinAgent;
use brokkr_api::tokens::JoinToken;
use http::StatusCode;

use crate::access::secret::{Secret, SecretKind};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::join_tokens::create::expiry;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::join_tokens::{NewJoinToken, join_token_insert_on_conn};

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
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
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
}
