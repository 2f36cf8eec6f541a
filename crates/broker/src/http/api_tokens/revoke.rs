//! Revokes an API token for good.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use super::scope;
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::api_tokens::api_token_revoke_on_conn;

/// Revoke an API token. It is refused here at once, and by every replica within 5 seconds.
#[utoipa::path(delete, path = "/api/v1/api-tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Id")), responses((status = 204, description = "Revoked")))]
pub async fn revoke_api_token(
    State(broker): State<Arc<Broker>>,
    Path(token): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("token");
    let id = token.parse().map_err(|_| missing())?;
    let caller = change.caller()?.token()?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let hash = api_token_revoke_on_conn(write.conn(), scope(caller), id).await?.ok_or_else(missing)?;
    let response = write.finish_empty().await?;
    broker.access.tokens.forget(&hash).await;
    tracing::info!(token_id = %id, "API token revoked");
    Ok(response)
}
