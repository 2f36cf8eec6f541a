//! Join tokens: single-use credentials for agents to register with.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::names::check_labels;
use brokkr_api::page::Page;
use brokkr_api::tokens::{
    CreateJoinToken, JOIN_TOKEN_SECONDS, JoinToken, JoinTokenInfo, LONGEST_JOIN_TOKEN_SECONDS,
};
use brokkr_api::{AgentId, ErrorCode, Labels, Name, TokenId};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::access::secret::{Secret, SecretKind};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::write::{self, ResultStorage, Write};
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::join_tokens::{join_token_insert_on_conn, join_token_list, join_token_revoke_on_conn};

/// Names that would collide with a path of the API.
const RESERVED: [&str; 1] = ["register"];

/// Create a join token.
///
/// It registers one agent, once, with the given name and labels.
#[utoipa::path(post, path = "/api/v1/join-tokens", tag = "agents", request_body = CreateJoinToken,
    responses((status = 201, body = JoinToken)))]
pub async fn create_join_token(State(broker): BrokerState, change: Change) -> ApiResult {
    let request: CreateJoinToken = change.json()?;
    check_labels(&request.labels).map_err(|error| ApiError::invalid_request(error.to_string()))?;
    let name = request.agent_name.as_str();
    if RESERVED.contains(&name) || name.parse::<Uuid>().is_ok() {
        return Err(ApiError::invalid_request(format!("{name:?} is not a valid name of an agent")));
    }
    let expires_at = expiry(request.ttl_seconds)?;
    if let Some(again) = write::first_result(&broker, &change, ResultStorage::Encrypted).await? {
        return Ok(again);
    }
    if agent_fetch(&broker.pool, &AgentRef::Name(name.to_owned())).await?.is_some() {
        return Err(ApiError::new(ErrorCode::BRK2002, format!("agent {name} already exists")));
    }
    write::run(&broker, &change, ResultStorage::Encrypted, async |write| {
        finish_join_token(write, request.agent_name, request.labels, None, expires_at).await
    })
    .await
}

/// Stores a new join token and responds with it.
pub async fn finish_join_token(
    mut write: Write,
    agent_name: Name,
    labels: Labels,
    rejoins: Option<AgentId>,
    expires_at: Timestamp,
) -> ApiResult {
    let secret = Secret::generate(SecretKind::JoinToken);
    let (id, token) = (TokenId::generate(), secret.expose().to_owned());
    let token = JoinToken { id, token, agent_name, labels, expires_at };
    join_token_insert_on_conn(write.conn(), &token, &secret.hash(), rejoins).await?;
    write.finish(StatusCode::CREATED, &token).await
}

/// Returns the expiry of a join token that is created now.
pub fn expiry(ttl_seconds: Option<u32>) -> ApiResult<Timestamp> {
    let seconds = ttl_seconds.unwrap_or(JOIN_TOKEN_SECONDS);
    if !(1..=LONGEST_JOIN_TOKEN_SECONDS).contains(&seconds) {
        let detail = format!("ttl_seconds must be 1 to {LONGEST_JOIN_TOKEN_SECONDS}");
        return Err(ApiError::invalid_request(detail));
    }
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    Ok(now + SignedDuration::from_secs(seconds.into()))
}

/// List join tokens, oldest first.
///
/// Tokens that expired within the last 30 days are included.
#[utoipa::path(get, path = "/api/v1/join-tokens", tag = "agents", params(Paging),
    responses((status = 200, body = Page<JoinTokenInfo>)))]
pub async fn list_join_tokens(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<JoinTokenInfo>>> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let tokens = join_token_list(&broker.pool, after, limit).await?;
    Ok(Json(Page::cut(tokens, limit, |token| token.id.to_string())))
}

/// Revoke a join token.
///
/// An agent that was registered with it stays.
#[utoipa::path(delete, path = "/api/v1/join-tokens/{token}", tag = "agents",
    params(("token" = String, Path, description = "Id")), responses((status = 204, description = "Revoked")))]
pub async fn revoke_join_token(
    State(broker): BrokerState,
    Path(token): Path<String>,
    change: Change,
) -> ApiResult {
    let missing = || ApiError::not_found("join token");
    let id = token.parse().map_err(|_| missing())?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        if !join_token_revoke_on_conn(write.conn(), id).await? {
            return Err(missing());
        }
        write.finish_empty().await
    })
    .await
}
