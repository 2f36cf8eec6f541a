//! Makes a project, or changes its quotas.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::Name;
use brokkr_api::names::BadName;
use brokkr_api::projects::{Project, PutProject};
use http::StatusCode;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::projects::{project_fetch, project_put_on_conn};

/// Make a project, or change the quotas that are given. A quota below what is used takes nothing away; it only
/// allows no more.
#[utoipa::path(put, path = "/api/v1/projects/{project}", tag = "projects", request_body = PutProject,
    params(("project" = String, Path, description = "Name")),
    responses((status = 200, body = Project, description = "Changed"), (status = 201, body = Project, description = "Created")))]
pub async fn put_project(
    State(broker): State<Arc<Broker>>,
    Path(project): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: PutProject = change.json_or_default()?;
    let name: Name = project.parse().map_err(|error: BadName| ApiError::unreadable(error.to_string()))?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    if let Some(before) = project_fetch(write.conn(), name.as_str()).await? {
        write.was(&before);
    }
    let created = project_put_on_conn(write.conn(), name.as_str(), &wanted.allowed).await?;
    let project = project_fetch(write.conn(), name.as_str()).await?;
    let project: Project = project.ok_or_else(|| ApiError::not_found("project"))?;
    write.finish(if created { StatusCode::CREATED } else { StatusCode::OK }, &project).await
}
