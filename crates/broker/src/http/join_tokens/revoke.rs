//! Ends a join token before its time.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::join_tokens::join_token_revoke_on_conn;

/// Revoke a join token. An agent that has used it stays.
#[utoipa::path(delete, path = "/api/v1/join-tokens/{token}", tag = "agents",
    params(("token" = String, Path, description = "Id")), responses((status = 204, description = "Revoked")))]
pub async fn revoke_join_token(
    State(broker): State<Arc<Broker>>,
    Path(token): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("join token");
    let id = token.parse().map_err(|_| missing())?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    if !join_token_revoke_on_conn(write.conn(), id).await? {
        return Err(missing());
    }
    write.finish_empty().await
}
