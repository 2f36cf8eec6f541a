//! Lists the approvals of a stack's newest version.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::AgentId;
use brokkr_api::approvals::PruneApproval;
use brokkr_api::page::Page;
use uuid::Uuid;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::prune_approvals::prune_approval_list;
use crate::store::stacks::{StackRef, stack_fetch};

/// List what was approved for the newest version of a stack.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/prune-approvals", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<PruneApproval>)))]
pub async fn list_prune_approvals(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<PruneApproval>>, ApiError> {
    let project = caller.project();
    let stack = stack_fetch(&broker.pool, project, &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let Some(newest) = stack.sequence_id else { return Ok(Json(Page::whole(Vec::new()))) };
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let found = prune_approval_list(&broker.pool, project, stack.id, newest, after, limit).await?;
    // The one for every agent comes before any other.
    let place = |approval: &PruneApproval| approval.agent_id.unwrap_or(AgentId(Uuid::nil())).to_string();
    Ok(Json(Page::cut(found, limit, place)))
}
