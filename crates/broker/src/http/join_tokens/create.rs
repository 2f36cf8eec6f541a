//! Makes a token with which one agent can join.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::names::check_labels;
use brokkr_api::tokens::{CreateJoinToken, JOIN_TOKEN_SECONDS, JoinToken, LONGEST_JOIN_TOKEN_SECONDS};
use brokkr_api::{ErrorCode, TokenId};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::access::secret::{Secret, SecretKind};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::join_tokens::{NewJoinToken, join_token_insert_on_conn};

/// Names that are words of the API's paths.
const RESERVED: [&str; 1] = ["register"];

/// Make a join token: one use, bound to a name and labels.
#[utoipa::path(post, path = "/api/v1/join-tokens", tag = "agents", request_body = CreateJoinToken,
    responses((status = 201, body = JoinToken)))]
pub async fn create_join_token(
    State(broker): State<Arc<Broker>>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: CreateJoinToken = change.json()?;
    check_labels(&wanted.labels).map_err(|error| ApiError::unreadable(error.to_string()))?;
    let name = wanted.agent_name.as_str();
    if RESERVED.contains(&name) || name.parse::<Uuid>().is_ok() {
        return Err(ApiError::unreadable(format!("an agent cannot be called {name:?}")));
    }
    let expires_at = expiry(wanted.ttl_seconds)?;
    if let Some(again) = Write::again(&broker, &change, Keep::Sealed).await? {
        return Ok(again);
    }
    if agent_fetch(&broker.pool, &AgentRef::Name(name.to_owned())).await?.is_some() {
        return Err(ApiError::new(ErrorCode::BRK2002, format!("there is an agent called {name} already")));
    }
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let secret = Secret::generate(SecretKind::JoinToken);
    let token = JoinToken {
        id: TokenId::generate(),
        token: secret.expose().to_owned(),
        agent_name: wanted.agent_name,
        labels: wanted.labels,
        expires_at,
    };
    let stored = NewJoinToken {
        id: token.id,
        hash: &secret.hash(),
        agent_name: token.agent_name.as_str(),
        labels: &token.labels,
        rejoins: None,
        expires_at,
    };
    join_token_insert_on_conn(write.conn(), stored).await?;
    write.finish(StatusCode::CREATED, &token).await
}

/// When a join token that is made now ends.
pub fn expiry(ttl_seconds: Option<u32>) -> Result<Timestamp, ApiError> {
    let seconds = ttl_seconds.unwrap_or(JOIN_TOKEN_SECONDS);
    if !(1..=LONGEST_JOIN_TOKEN_SECONDS).contains(&seconds) {
        let detail = format!("a join token is valid for 1 to {LONGEST_JOIN_TOKEN_SECONDS} seconds");
        return Err(ApiError::unreadable(detail));
    }
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    Ok(now + SignedDuration::from_secs(seconds.into()))
}
