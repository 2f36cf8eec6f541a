//! One project: what it may have, and what it uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::projects::Project;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::store::projects::project_fetch;

/// Read a project, with its quotas and what it uses of them.
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Name")), responses((status = 200, body = Project)))]
pub async fn get_project(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<Project>, ApiError> {
    let missing = || ApiError::not_found("project");
    let token = caller.token()?;
    if !token.role.is_over_installation() && token.project != project {
        return Err(missing());
    }
    project_fetch(&broker.pool, &project).await?.map(Json).ok_or_else(missing)
}
