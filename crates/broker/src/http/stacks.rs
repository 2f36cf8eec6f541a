//! Stacks: created, changed, targeted, deleted, and their status.

pub mod list;
pub mod purge;
pub mod rerun;
pub mod rollback;
pub mod status;
pub mod targets;
pub mod why;

use axum::extract::{Path, State};
use brokkr_api::names::BadName;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::stacks::{PutStack, Stack, wave_wait};
use brokkr_api::suspensions::EndCause;
use brokkr_api::tokens::Role;
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{ErrorCode, Name, StackId};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::rollout::policy::{Kind, SMALL_FLEET};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::{Change, check_metadata};
use crate::http::deployment_objects::{announce, publish};
use crate::http::paging::QueryParams;
use crate::http::precondition;
use crate::http::precondition::tagged;
use crate::http::rollouts::begin::{RolloutQuery, deletion_under_way};
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::store::deployment_objects::{NewObject, NewRollout, deployment_object_fetch_on_conn};
use crate::store::outbox::OutboxNotification;
use crate::store::stacks::{
    LockedStack, StackRef, stack_change_on_conn, stack_fetch, stack_insert_on_conn, stack_lock_on_conn,
};
use crate::store::suspensions::suspension_end_on_conn;

/// Fetches the stack of this name or id. A deleted stack is found by id, or by name if no other stack has the name.
pub async fn find_stack(broker: &Broker, project: &str, stack: &str) -> ApiResult<Stack> {
    let found = stack_fetch(&broker.pool, project, &StackRef::read(stack)).await?;
    found.ok_or_else(|| ApiError::not_found("stack"))
}

/// Locks the row of the stack of this name or id.
pub async fn lock_stack(write: &mut Write, project: &str, stack: &str) -> ApiResult<LockedStack> {
    let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(stack)).await?;
    locked.ok_or_else(|| ApiError::not_found("stack"))
}

/// Locks the row of the stack of this name or id, unless it is deleted.
pub async fn lock_existing_stack(write: &mut Write, project: &str, stack: &str) -> ApiResult<LockedStack> {
    existing(lock_stack(write, project, stack).await?)
}

/// Returns the stack, unless it is deleted.
pub fn existing(locked: LockedStack) -> ApiResult<LockedStack> {
    match locked.deleted_at {
        Some(_) => Err(ApiError::new(ErrorCode::BRK2008, format!("stack {} was deleted", locked.name))),
        None => Ok(locked),
    }
}

/// Fetches the stack as it is now in the transaction.
pub async fn changed_stack(write: &mut Write, locked: &LockedStack) -> ApiResult<Stack> {
    let stack = stack_fetch(write.conn(), &locked.project, &StackRef::Id(locked.id)).await?;
    stack.ok_or_else(|| ApiError::not_found("stack"))
}

/// Get a stack.
///
/// A deleted stack is found by id, or by name if no other stack has the name. Use its `ETag` as `If-Match` of a
/// change.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = Stack)))]
pub async fn get_stack(State(broker): BrokerState, caller: Caller, Path(stack): Path<String>) -> ApiResult {
    let stack = find_stack(&broker, caller.project(), &stack).await?;
    Ok(tagged(&stack))
}

/// Create or change a stack.
///
/// The name of a deleted stack can be used again: it names a new stack then.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}", tag = "stacks", request_body = PutStack,
    params(("stack" = String, Path, description = "Name, or id of an existing stack"), precondition::IfMatch),
    responses((status = 200, body = Stack, description = "Changed"), (status = 201, body = Stack, description = "Created")))]
pub async fn put_stack(State(broker): BrokerState, Path(stack): Path<String>, change: Change) -> ApiResult {
    let request: PutStack = change.json_or_default()?;
    check_metadata(request.labels.as_ref(), request.annotations.as_ref())?;
    if let Some(annotations) = &request.annotations {
        wave_wait(annotations).map_err(|error| ApiError::invalid_request(error.to_string()))?;
    }
    let named = StackRef::read(&stack);
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let created = match &named {
            StackRef::Id(_) => false,
            StackRef::Name(name) => {
                let name: Name =
                    name.parse().map_err(|error: BadName| ApiError::invalid_request(error.to_string()))?;
                stack_insert_on_conn(write.conn(), project, StackId::generate(), name.as_str()).await?
            }
        };
        if created {
            quota_check_on_conn(write.conn(), project, Added::Stack).await?;
        }
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        if !created {
            precondition::stack_itself(&mut write, &change, &locked).await?;
        }
        stack_change_on_conn(write.conn(), &locked, &request).await?;
        write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        let stack = changed_stack(&mut write, &locked).await?;
        write.finish(if created { StatusCode::CREATED } else { StatusCode::OK }, &stack).await
    })
    .await
}

/// How to delete a stack.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteStackQuery {
    /// Keep its resources in the clusters: agents only remove Brokkr's metadata from them.
    #[serde(default)]
    pub keep_resources: bool,
    /// Delete it in waves of these sizes, such as `1,10%,100%`. By default, a stack with at least 100 agents is deleted in the
    /// waves of its rollout policy, and a smaller one on all agents at once.
    pub waves: Option<String>,
    /// How long a wave has to stay removed before the next one begins.
    pub soak_seconds: Option<u32>,
    /// End the suspensions of the stack. Otherwise agents on which it is suspended keep it until they end.
    #[serde(default)]
    pub force: bool,
}

impl DeleteStackQuery {
    /// Returns the rollout of the deletion; none if every agent removes the stack at once.
    fn rollout(&self, broker: &Broker, stack: &LockedStack, role: Role) -> ApiResult<Option<NewRollout>> {
        let is_large = || {
            let snapshot = broker.index.snapshot();
            let holders = snapshot.holders(stack.id).count();
            u64::try_from(holders).unwrap_or(u64::MAX) >= SMALL_FLEET
        };
        if self.waves.is_none() && self.soak_seconds.is_none() && !is_large() {
            return Ok(None);
        }
        let (waves, soak_seconds) = (self.waves.clone(), self.soak_seconds);
        RolloutQuery { waves, soak_seconds, ..RolloutQuery::default() }.begin(stack, Kind::Deletion, role)
    }
}

/// Delete a stack.
///
/// Agents that hold it remove its resources: all at once, or in waves. The response is the deletion marker; deleting again returns
/// the same one, unless its rollout was stopped.
#[utoipa::path(delete, path = "/api/v1/stacks/{stack}", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), precondition::IfMatch, DeleteStackQuery), responses((status = 200, body = DeploymentObject)))]
pub async fn delete_stack(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    QueryParams(query): QueryParams<DeleteStackQuery>,
    change: Change,
) -> ApiResult {
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        if query.force {
            suspension_end_on_conn(write.conn(), &locked, None, EndCause::Forced, &token.name).await?;
            write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        }
        if let (Some(_), Some(newest)) = (locked.deleted_at, locked.newest) {
            let marker = deployment_object_fetch_on_conn(write.conn(), newest).await?;
            let marker = marker.ok_or_else(|| ApiError::not_found("stack"))?;
            return write.finish(StatusCode::OK, &marker).await;
        }
        precondition::stack_itself(&mut write, &change, &locked).await?;
        if let Some(marker) = deletion_under_way(&mut write, &locked).await? {
            return write.finish(StatusCode::OK, &marker).await;
        }
        let rollout = query.rollout(&broker, &locked, token.role)?;
        let marker = NewObject::deletion_marker(&token.name, query.keep_resources);
        let published = publish(&mut write, &locked, &marker, rollout.as_ref()).await?;
        let marker = &published.object;
        let (is_staged, sequence_id) = (rollout.is_some(), marker.sequence_id);
        tracing::info!(stack_id = %locked.id, stack = locked.name, %sequence_id, is_staged, "stack deleted");
        // A rollout announces its end itself.
        let event = if is_staged { WebhookEvent::RolloutStarted } else { WebhookEvent::StackDeleted };
        announce(&mut write, event, &locked, &published).await?;
        write.finish(StatusCode::OK, marker).await
    })
    .await
}
