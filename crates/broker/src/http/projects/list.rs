//! Lists projects by name: all of them, or one's own.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::projects::Project;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::projects::project_list;

/// List the projects that the caller may see, by name.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(Paging),
    responses((status = 200, body = Page<Project>)))]
pub async fn list_projects(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<Project>>, ApiError> {
    let token = caller.token()?;
    let only = (!token.role.is_over_installation()).then_some(token.project.as_str());
    let limit = paging.limit();
    let projects = project_list(&broker.pool, only, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(projects, limit, |project| project.name.to_string())))
}
