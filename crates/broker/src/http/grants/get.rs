//! One grant, by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::grants::ProjectGrant;

use crate::state::Broker;
use crate::error::ApiError;
use crate::store::grants::grant_fetch;

/// Read a grant.
#[utoipa::path(get, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Name")), responses((status = 200, body = ProjectGrant)))]
pub async fn get_grant(
    State(broker): State<Arc<Broker>>,
    Path(grant): Path<String>,
) -> Result<Json<ProjectGrant>, ApiError> {
    let grant = grant_fetch(&broker.pool, &grant).await?;
    grant.map(Json).ok_or_else(|| ApiError::not_found("grant"))
}
