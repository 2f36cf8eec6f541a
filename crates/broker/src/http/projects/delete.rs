//! Deletes a project that nothing is left in.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::names::DEFAULT_PROJECT;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::projects::{Deleted, project_delete_on_conn, project_fetch};

/// Delete a project. Refused as long as it has stacks, valid tokens, webhooks or grants.
#[utoipa::path(delete, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Name")), responses((status = 204, description = "Deleted")))]
pub async fn delete_project(
    State(broker): State<Arc<Broker>>,
    Path(project): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let in_use = |what: &str| ApiError::new(ErrorCode::BRK1008, format!("the project {project} has {what}"));
    if project == DEFAULT_PROJECT {
        return Err(in_use("the agents that belong to no other"));
    }
    if change.caller()?.project() == project {
        return Err(ApiError::unreadable("a project cannot be deleted by a token that acts in it"));
    }
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    if let Some(before) = project_fetch(write.conn(), &project).await? {
        write.was(&before);
    }
    match project_delete_on_conn(write.conn(), &project).await? {
        Deleted::Gone => {}
        Deleted::Absent => return Err(ApiError::not_found("project")),
        Deleted::InUse(what) => return Err(in_use(what)),
    }
    let response = write.finish_empty().await?;
    broker.access.tokens.forget_project(&project).await;
    Ok(response)
}
