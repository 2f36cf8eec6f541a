//! Approvals of prunes that delete more than an agent prunes by itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::approvals::{ApprovePrune, PruneApproval};
use brokkr_api::page::Page;
use brokkr_api::{AgentId, ErrorCode};
use http::StatusCode;
use uuid::Uuid;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::agents::sees;
use crate::http::change::Change;
use crate::http::paging::{Asked, Paging, cursor};
use crate::http::write::{self, Keep};
use crate::state::Broker;
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::outbox::Doorbell;
use crate::store::prune_approvals::{prune_approval_list, prune_approval_put_on_conn};
use crate::store::stacks::{StackRef, stack_fetch, stack_lock_on_conn};

/// Approve a prune that waits, because it would delete more than 50 objects and more than 30 % of the stack. It is
/// for this version alone, and for no more objects than it says.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/prune-approvals", tag = "stacks", request_body = ApprovePrune,
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 201, body = PruneApproval)))]
pub async fn approve_prune(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: ApprovePrune = change.json()?;
    let objects = i32::try_from(wanted.objects).ok().filter(|objects| *objects > 0);
    let objects = objects.ok_or_else(|| ApiError::unreadable("objects is between 1 and 2147483647"))?;
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let agent = match &wanted.agent {
        None => None,
        Some(named) => {
            let found = agent_fetch(&broker.pool, &AgentRef::read(named)).await?.map(|agent| agent.id);
            let seen = found.filter(|agent| sees(&broker.index.picture(), caller, *agent));
            Some(seen.ok_or_else(|| ApiError::not_found("agent"))?)
        }
    };
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
        let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
        if locked.newest != Some(wanted.sequence_id) {
            let newest = locked.newest.map_or_else(|| "none".to_owned(), |newest| newest.to_string());
            let detail =
                format!("the newest version of {} is {newest}, not {}", locked.name, wanted.sequence_id);
            return Err(ApiError::new(ErrorCode::BRK2014, detail));
        }
        let approval = prune_approval_put_on_conn(
            write.conn(),
            &locked,
            wanted.sequence_id,
            agent,
            objects,
            &token.name,
        )
        .await?;
        write.ring(project, Doorbell::Stack(locked.id)).await?;
        write.finish(StatusCode::CREATED, &approval).await
    })
    .await
}

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
