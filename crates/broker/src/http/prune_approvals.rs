//! Approvals of prunes that delete more than an agent may delete without approval.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::approvals::{ApprovePrune, PruneApproval};
use brokkr_api::page::Page;
use brokkr_api::{AgentId, ErrorCode};
use http::StatusCode;
use uuid::Uuid;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::find_agent_id;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::stacks::{find_stack, lock_stack};
use crate::http::write::{self, ResultStorage};
use crate::store::outbox::OutboxNotification;
use crate::store::prune_approvals::{prune_approval_list, prune_approval_put_on_conn};

/// Approve a pending prune.
///
/// A prune waits for approval if it would delete more than 50 objects and more than 30 % of the stack. The approval
/// is valid for this version only, and for at most the given number of objects.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/prune-approvals", tag = "stacks", request_body = ApprovePrune,
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 201, body = PruneApproval)))]
pub async fn approve_prune(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let request: ApprovePrune = change.json()?;
    let objects = i32::try_from(request.objects).ok().filter(|objects| *objects > 0);
    let objects =
        objects.ok_or_else(|| ApiError::invalid_request("objects must be between 1 and 2147483647"))?;
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let agent = find_agent_id(&broker, caller, request.agent.as_deref()).await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        if ![locked.newest, locked.staged].contains(&Some(request.sequence_id)) {
            let newest = locked.last().map_or_else(|| "none".to_owned(), |newest| newest.to_string());
            let detail =
                format!("the newest version of {} is {newest}, not {}", locked.name, request.sequence_id);
            return Err(ApiError::new(ErrorCode::BRK2014, detail));
        }
        let approval = prune_approval_put_on_conn(
            write.conn(),
            &locked,
            request.sequence_id,
            agent,
            objects,
            &token.name,
        )
        .await?;
        write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        write.finish(StatusCode::CREATED, &approval).await
    })
    .await
}

/// List the prune approvals of the newest version of a stack.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/prune-approvals", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<PruneApproval>)))]
pub async fn list_prune_approvals(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<PruneApproval>>> {
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let Some(newest) = stack.sequence_id else { return Ok(Json(Page::whole(Vec::new()))) };
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let found = prune_approval_list(&broker.pool, project, stack.id, newest, after, limit).await?;
    // The approval for all agents comes first.
    let cursor_of = |approval: &PruneApproval| approval.agent_id.unwrap_or(AgentId(Uuid::nil())).to_string();
    Ok(Json(Page::cut(found, limit, cursor_of)))
}
