//! Suspensions: agents leave a stack, or one object of it, alone for some time.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::page::Page;
use brokkr_api::suspensions::{EndCause, EndSuspensions, NewSuspension, Suspension};
use http::StatusCode;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::find_agent_id;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::stacks::{find_stack, lock_stack};
use crate::http::write::{self, ResultStorage};
use crate::store::outbox::OutboxNotification;
use crate::store::suspensions::{
    suspension_count_on_conn, suspension_end_on_conn, suspension_insert_on_conn, suspension_list,
};

/// The maximum number of suspensions of a stack that are in force: agents get all of them.
const MOST: i64 = 50;

/// Suspend a stack, or one object of it.
///
/// The agents apply, repair and prune nothing of it until the suspension ends: after its time, or with `resume`. Rollouts go on without
/// them. Deletions and rollbacks of the stack wait, unless they are forced. When it ends, agents report what others have changed
/// meanwhile before they repair it.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/suspensions", tag = "stacks", request_body = NewSuspension,
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 201, body = Suspension)))]
pub async fn suspend_stack(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let request: NewSuspension = change.json()?;
    request.check().map_err(ApiError::invalid_request)?;
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let agent = find_agent_id(&broker, caller, request.agent.as_deref()).await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        if suspension_count_on_conn(write.conn(), &locked).await? >= MOST {
            let detail = format!("{} already has {MOST} suspensions; resume some of them first", locked.name);
            return Err(ApiError::invalid_request(detail));
        }
        let suspension =
            suspension_insert_on_conn(write.conn(), &locked, &request, agent, &token.name).await?;
        write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        tracing::info!(stack_id = %locked.id, stack = locked.name, suspension = %suspension.id, "stack suspended");
        write.finish(StatusCode::CREATED, &suspension).await
    })
    .await
}

/// List the suspensions of a stack, newest first, with those that have ended.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/suspensions", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<Suspension>)))]
pub async fn list_suspensions(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<Suspension>>> {
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let (before, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let found = suspension_list(&broker.pool, project, stack.id, before, limit).await?;
    Ok(Json(Page::cut(found, limit, |suspension: &Suspension| suspension.id.to_string())))
}

/// End the suspensions of a stack, or one of them. Returns those that it ended.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/resume", tag = "stacks", request_body = EndSuspensions,
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 200, body = Page<Suspension>)))]
pub async fn resume_stack(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let request: EndSuspensions = change.json()?;
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        let ended =
            suspension_end_on_conn(write.conn(), &locked, request.id, EndCause::Resumed, &token.name).await?;
        if !ended.is_empty() {
            write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        }
        write.finish(StatusCode::OK, &Page::whole(ended)).await
    })
    .await
}
