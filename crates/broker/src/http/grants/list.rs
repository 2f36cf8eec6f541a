//! Lists grants by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::grants::ProjectGrant;
use brokkr_api::page::Page;

use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::grants::grant_list;

/// List the grants of all projects, by name.
#[utoipa::path(get, path = "/api/v1/grants", tag = "grants", params(Paging),
    responses((status = 200, body = Page<ProjectGrant>)))]
pub async fn list_grants(
    State(broker): State<Arc<Broker>>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<ProjectGrant>>, ApiError> {
    let limit = paging.limit();
    let grants = grant_list(&broker.pool, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(grants, limit, |grant: &ProjectGrant| grant.name.to_string())))
}
