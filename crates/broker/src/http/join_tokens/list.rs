//! Lists join tokens, oldest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::tokens::JoinTokenInfo;

use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::join_tokens::join_token_list;

/// List the join tokens, oldest first, with the expired ones of the last 30 days.
#[utoipa::path(get, path = "/api/v1/join-tokens", tag = "agents", params(Paging),
    responses((status = 200, body = Page<JoinTokenInfo>)))]
pub async fn list_join_tokens(
    State(broker): State<Arc<Broker>>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<JoinTokenInfo>>, ApiError> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let tokens = join_token_list(&broker.pool, after, limit).await?;
    Ok(Json(Page::cut(tokens, limit, |token| token.id.to_string())))
}
