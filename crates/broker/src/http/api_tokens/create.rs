//! Makes an API token. Its secret is shown once, here.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::tokens::{API_TOKEN_SECONDS, CreateApiToken, LONGEST_API_TOKEN_SECONDS, NewApiToken};
use brokkr_api::{ErrorCode, TokenId};
use http::StatusCode;

use crate::access::secret::{Secret, SecretKind};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::http::write::{Begun, Keep, Write};
use crate::store::api_tokens::{self, api_token_insert_on_conn};

/// Make an API token in the project that the caller acts in. Owners give the roles of a project, admins any.
#[utoipa::path(post, path = "/api/v1/api-tokens", tag = "tokens", request_body = CreateApiToken,
    responses((status = 201, body = NewApiToken)))]
pub async fn create_api_token(
    State(broker): State<Arc<Broker>>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: CreateApiToken = change.json()?;
    let caller = change.caller()?.token()?;
    if !caller.role.may_give(wanted.role) {
        let detail = format!("the role {} cannot give the role {}", caller.role, wanted.role);
        return Err(ApiError::new(ErrorCode::BRK1002, detail));
    }
    let seconds = wanted.ttl_seconds.unwrap_or(API_TOKEN_SECONDS);
    if !(1..=LONGEST_API_TOKEN_SECONDS).contains(&seconds) {
        let detail = format!("a token is valid for 1 to {LONGEST_API_TOKEN_SECONDS} seconds");
        return Err(ApiError::unreadable(detail));
    }
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let secret = Secret::generate(SecretKind::ApiToken);
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let token = api_tokens::NewApiToken {
        project: &caller.project,
        id: TokenId::generate(),
        name: wanted.name.as_str(),
        role: wanted.role,
        hash: &secret.hash(),
        created_by: Some(&caller.name),
        expires_at: Some(now + jiff::SignedDuration::from_secs(seconds.into())),
    };
    let info = api_token_insert_on_conn(write.conn(), token).await?;
    quota_check_on_conn(write.conn(), &caller.project, Added::Token).await?;
    tracing::info!(token_id = %info.id, name = info.name, role = %info.role, project = info.project, "API token made");
    let made = NewApiToken { token: secret.expose().to_owned(), info };
    write.finish(StatusCode::CREATED, &made).await
}
