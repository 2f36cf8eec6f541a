//! Lists the API tokens of a project, oldest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::tokens::ApiToken;

use super::scope;
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::api_tokens::api_token_list;

/// List the API tokens of the project, oldest first, with the revoked and expired ones of the last 30 days.
/// Tokens of admins and auditors are shown to them alone.
#[utoipa::path(get, path = "/api/v1/api-tokens", tag = "tokens", params(Paging),
    responses((status = 200, body = Page<ApiToken>)))]
pub async fn list_api_tokens(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<ApiToken>>, ApiError> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let tokens = api_token_list(&broker.pool, scope(caller.token()?), after, limit).await?;
    Ok(Json(Page::cut(tokens, limit, |token| token.id.to_string())))
}
