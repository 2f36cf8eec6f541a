//! The history of a stack, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::deployment_objects::deployment_object_list;
use crate::store::stacks::{StackRef, stack_fetch};

/// List the versions of a stack, newest first.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/deployment-objects", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<DeploymentObject>)))]
pub async fn list_deployment_objects(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<DeploymentObject>>, ApiError> {
    let project = caller.project();
    let stack = stack_fetch(&broker.pool, project, &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let objects = deployment_object_list(&broker.pool, project, stack.id, below, limit).await?;
    Ok(Json(Page::cut(objects, limit, |object| object.sequence_id.to_string())))
}
