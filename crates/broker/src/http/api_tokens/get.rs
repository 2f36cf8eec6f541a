//! One API token, without its secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::tokens::ApiToken;

use super::scope;
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::store::api_tokens::api_token_fetch;

/// Read an API token of the project.
#[utoipa::path(get, path = "/api/v1/api-tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Id")), responses((status = 200, body = ApiToken)))]
pub async fn get_api_token(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(token): Path<String>,
) -> Result<Json<ApiToken>, ApiError> {
    let missing = || ApiError::not_found("token");
    let id = token.parse().map_err(|_| missing())?;
    let token = api_token_fetch(&broker.pool, scope(caller.token()?), id).await?;
    token.map(Json).ok_or_else(missing)
}
