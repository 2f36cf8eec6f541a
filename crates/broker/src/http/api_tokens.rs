//! API tokens: the credentials of people and programs.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::page::Page;
use brokkr_api::tokens::{
    API_TOKEN_SECONDS, ApiToken, CreateApiToken, LONGEST_API_TOKEN_SECONDS, LONGEST_OVERLAP_SECONDS,
    NewApiToken, OVERLAP_SECONDS, RotateApiToken, RotatedApiToken, WhoAmI,
};
use brokkr_api::{ErrorCode, TokenId};
use http::StatusCode;
use jiff::SignedDuration;

use crate::access::Caller;
use crate::access::secret::{Secret, SecretKind};
use crate::domain::rotation::{ends, is_valid};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::write::{self, ResultStorage, digest};
use crate::state::quota::{Added, quota_check_on_conn};
use crate::store::api_tokens::{
    self, TokenScope, api_token_end_on_conn, api_token_fetch, api_token_insert_on_conn, api_token_list,
    api_token_lock_on_conn, api_token_revoke_on_conn,
};

/// Returns the tokens that the caller may see: those of its project, and tokens of the installation only with a role
/// of the installation.
fn scope(caller: &WhoAmI) -> TokenScope<'_> {
    TokenScope { project: &caller.project, over_installation: caller.role.is_over_installation() }
}

/// Show the identity, role and project of the caller, and the version of the broker.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "tokens", responses((status = 200, body = WhoAmI)))]
pub async fn whoami(caller: Caller) -> ApiResult<Json<WhoAmI>> {
    let server_version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(WhoAmI { server_version, ..caller.token()?.clone() }))
}

/// Create an API token in the project of the request.
///
/// Owners may grant the roles of a project, admins any role. The response contains the secret, which is not shown
/// again.
#[utoipa::path(post, path = "/api/v1/api-tokens", tag = "tokens", request_body = CreateApiToken,
    responses((status = 201, body = NewApiToken)))]
pub async fn create_api_token(State(broker): BrokerState, change: Change) -> ApiResult {
    let request: CreateApiToken = change.json()?;
    let caller = change.caller()?.token()?;
    if !caller.role.may_give(request.role) {
        let detail = format!("the role {} may not grant the role {}", caller.role, request.role);
        return Err(ApiError::new(ErrorCode::BRK1002, detail));
    }
    let seconds = request.ttl_seconds.unwrap_or(API_TOKEN_SECONDS);
    if !(1..=LONGEST_API_TOKEN_SECONDS).contains(&seconds) {
        let detail = format!("ttl_seconds must be 1 to {LONGEST_API_TOKEN_SECONDS}");
        return Err(ApiError::invalid_request(detail));
    }
    write::run(&broker, &change, ResultStorage::Encrypted, async |mut write| {
        let secret = Secret::generate(SecretKind::ApiToken);
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
        let token = api_tokens::NewApiToken {
            project: &caller.project,
            id: TokenId::generate(),
            name: request.name.as_str(),
            role: request.role,
            hash: &secret.hash(),
            created_by: Some(&caller.name),
            expires_at: Some(now + jiff::SignedDuration::from_secs(seconds.into())),
        };
        let info = api_token_insert_on_conn(write.conn(), token).await?;
        quota_check_on_conn(write.conn(), &caller.project, Added::Token).await?;
        tracing::info!(
            token_id = %info.id,
            name = info.name,
            role = %info.role,
            project = info.project,
            "API token created"
        );
        let made = NewApiToken { token: secret.expose().to_owned(), info };
        write.finish(StatusCode::CREATED, &made).await
    })
    .await
}

/// List the API tokens of the project, oldest first.
///
/// Tokens that were revoked or expired within the last 30 days are included. Only admins and auditors see the tokens
/// of admins and auditors.
#[utoipa::path(get, path = "/api/v1/api-tokens", tag = "tokens", params(Paging),
    responses((status = 200, body = Page<ApiToken>)))]
pub async fn list_api_tokens(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<ApiToken>>> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let tokens = api_token_list(&broker.pool, scope(caller.token()?), after, limit).await?;
    Ok(Json(Page::cut(tokens, limit, |token| token.id.to_string())))
}

/// Get an API token of the project.
#[utoipa::path(get, path = "/api/v1/api-tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Id")), responses((status = 200, body = ApiToken)))]
pub async fn get_api_token(
    State(broker): BrokerState,
    caller: Caller,
    Path(token): Path<String>,
) -> ApiResult<Json<ApiToken>> {
    let missing = || ApiError::not_found("token");
    let id = token.parse().map_err(|_| missing())?;
    let token = api_token_fetch(&broker.pool, scope(caller.token()?), id).await?;
    token.map(Json).ok_or_else(missing)
}

/// Revoke an API token.
///
/// Every replica refuses it within 5 seconds.
#[utoipa::path(delete, path = "/api/v1/api-tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Id")), responses((status = 204, description = "Revoked")))]
pub async fn revoke_api_token(
    State(broker): BrokerState,
    Path(token): Path<String>,
    change: Change,
) -> ApiResult {
    let missing = || ApiError::not_found("token");
    let id = token.parse().map_err(|_| missing())?;
    let caller = change.caller()?.token()?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let hash = api_token_revoke_on_conn(write.conn(), scope(caller), id).await?.ok_or_else(missing)?;
        let response = write.finish_empty().await?;
        broker.access.tokens.refuse(&hash).await;
        tracing::info!(token_id = %id, "API token revoked");
        Ok(response)
    })
    .await
}

/// Replace an API token by a new one with the same name, role and lifetime.
///
/// The old token ends after the overlap, or at its own expiry if that is earlier. The response contains the new
/// secret, which is not shown again.
#[utoipa::path(post, path = "/api/v1/api-tokens/{token}/rotate", tag = "tokens", request_body = RotateApiToken,
    params(("token" = String, Path, description = "Id")), responses((status = 201, body = RotatedApiToken)))]
pub async fn rotate_api_token(
    State(broker): BrokerState,
    Path(token): Path<String>,
    change: Change,
) -> ApiResult {
    let missing = || ApiError::not_found("token");
    let id: TokenId = token.parse().map_err(|_| missing())?;
    let (overlap, lifetime) = lifetimes(&change.json_or_default()?)?;
    let caller = change.caller()?.token()?;
    write::run(&broker, &change, ResultStorage::Encrypted, async |mut write| {
        let (old, now) =
            api_token_lock_on_conn(write.conn(), scope(caller), id).await?.ok_or_else(missing)?;
        if !is_valid(&old, now) {
            let detail = "the token is revoked or expired; create a new one";
            return Err(ApiError::new(ErrorCode::BRK2001, detail));
        }
        if !caller.role.may_give(old.role) {
            let detail = format!("the role {} may not grant the role {}", caller.role, old.role);
            return Err(ApiError::new(ErrorCode::BRK1002, detail));
        }
        let ends = ends(&old, now, overlap, lifetime);
        let secret = Secret::generate(SecretKind::ApiToken);
        let token = api_tokens::NewApiToken {
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
        write.audit_digests(Some(digest(&old)), Some(digest(&replaces)));
        tracing::info!(
            token_id = %info.id,
            replaces = %id,
            name = info.name,
            project = info.project,
            "API token rotated"
        );
        let made = RotatedApiToken { token: secret.expose().to_owned(), info, replaces };
        let response = write.finish(StatusCode::CREATED, &made).await?;
        // The cached token still has its old expiry.
        broker.access.tokens.forget(&hash).await;
        Ok(response)
    })
    .await
}

/// Returns the overlap, and the lifetime of the new token if it is given.
fn lifetimes(request: &RotateApiToken) -> ApiResult<(SignedDuration, Option<SignedDuration>)> {
    let overlap = request.overlap_seconds.unwrap_or(OVERLAP_SECONDS);
    if overlap > LONGEST_OVERLAP_SECONDS {
        let detail = format!("overlap_seconds must be at most {LONGEST_OVERLAP_SECONDS}");
        return Err(ApiError::invalid_request(detail));
    }
    if request.ttl_seconds.is_some_and(|seconds| !(1..=LONGEST_API_TOKEN_SECONDS).contains(&seconds)) {
        let detail = format!("ttl_seconds must be 1 to {LONGEST_API_TOKEN_SECONDS}");
        return Err(ApiError::invalid_request(detail));
    }
    let duration = |seconds: u32| SignedDuration::from_secs(seconds.into());
    Ok((duration(overlap), request.ttl_seconds.map(duration)))
}
