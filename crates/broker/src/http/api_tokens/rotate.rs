//! Makes an API token in the place of another one. The old one is good for a while, too, so that nobody who uses it is
//! locked out before the new one has arrived.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::tokens::{
    LONGEST_API_TOKEN_SECONDS, LONGEST_OVERLAP_SECONDS, OVERLAP_SECONDS, RotateApiToken, RotatedApiToken,
};
use brokkr_api::{ErrorCode, TokenId};
use http::StatusCode;
use jiff::SignedDuration;

use super::scope;
use crate::access::secret::{Secret, SecretKind};
use crate::state::Broker;
use crate::domain::rotation::{ends, is_valid};
use crate::http::change::Change;
use crate::error::ApiError;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::http::write::{Begun, Keep, Write, digest};
use crate::store::api_tokens::{
    NewApiToken, api_token_end_on_conn, api_token_insert_on_conn, api_token_lock_on_conn,
};

/// Make an API token in the place of another one, with the same name, role and lifetime. The old one ends after the
/// overlap, or when it would have ended anyway. The answer holds the new secret, which is not shown again.
#[utoipa::path(post, path = "/api/v1/api-tokens/{token}/rotate", tag = "tokens", request_body = RotateApiToken,
    params(("token" = String, Path, description = "Id")), responses((status = 201, body = RotatedApiToken)))]
pub async fn rotate_api_token(
    State(broker): State<Arc<Broker>>,
    Path(token): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("token");
    let id: TokenId = token.parse().map_err(|_| missing())?;
    let (overlap, lifetime) = asked(&change.json_or_default()?)?;
    let caller = change.caller()?.token()?;
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let (old, now) = api_token_lock_on_conn(write.conn(), scope(caller), id).await?.ok_or_else(missing)?;
    if !is_valid(&old, now) {
        let detail = "the token is revoked or expired, and nothing takes its place: make a new one";
        return Err(ApiError::new(ErrorCode::BRK2001, detail));
    }
    if !caller.role.may_give(old.role) {
        let detail = format!("the role {} cannot give the role {}", caller.role, old.role);
        return Err(ApiError::new(ErrorCode::BRK1002, detail));
    }
    let ends = ends(&old, now, overlap, lifetime);
    let secret = Secret::generate(SecretKind::ApiToken);
    let token = NewApiToken {
        project: &old.project,
        id: TokenId::generate(),
        name: &old.name,
        role: old.role,
        hash: &secret.hash(),
        created_by: Some(&caller.name),
        expires_at: Some(ends.new),
    };
    let info = api_token_insert_on_conn(write.conn(), token).await?;
    quota_check_on_conn(write.conn(), &caller.project, Added::Token).await?;
    let (replaces, hash) = api_token_end_on_conn(write.conn(), &old.project, id, ends.old).await?;
    write.noting(Some(digest(&old)), Some(digest(&replaces)));
    tracing::info!(token_id = %info.id, replaces = %id, name = info.name, project = info.project, "API token rotated");
    let made = RotatedApiToken { token: secret.expose().to_owned(), info, replaces };
    let response = write.finish(StatusCode::CREATED, &made).await?;
    // What is remembered of it here has its old end.
    broker.access.tokens.forget(&hash).await;
    Ok(response)
}

/// The overlap, and how long the new one lasts if that was said.
fn asked(wanted: &RotateApiToken) -> Result<(SignedDuration, Option<SignedDuration>), ApiError> {
    let overlap = wanted.overlap_seconds.unwrap_or(OVERLAP_SECONDS);
    if overlap > LONGEST_OVERLAP_SECONDS {
        let detail = format!("two tokens are valid together for at most {LONGEST_OVERLAP_SECONDS} seconds");
        return Err(ApiError::unreadable(detail));
    }
    if wanted.ttl_seconds.is_some_and(|seconds| !(1..=LONGEST_API_TOKEN_SECONDS).contains(&seconds)) {
        let detail = format!("a token is valid for 1 to {LONGEST_API_TOKEN_SECONDS} seconds");
        return Err(ApiError::unreadable(detail));
    }
    let duration = |seconds: u32| SignedDuration::from_secs(seconds.into());
    Ok((duration(overlap), wanted.ttl_seconds.map(duration)))
}
