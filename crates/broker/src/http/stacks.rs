//! Stacks: created, changed, targeted, deleted, and their status.

pub mod list;
pub mod rollback;
pub mod status;
pub mod targets;
pub mod why;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ids::Checksum;
use brokkr_api::names::{check_annotations, check_labels};
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::stacks::{PutStack, Stack};
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{ErrorCode, Name, StackId};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::error::ApiError;
use crate::http::change::Change;
use crate::http::paging::Asked;
use crate::http::precondition;
use crate::http::precondition::tagged;
use crate::http::write::{self, Keep};
use crate::state::Broker;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::store::deployment_objects::{
    NewObject, deployment_object_fetch_on_conn, deployment_object_insert_on_conn,
};
use crate::store::outbox::Doorbell;
use crate::store::stacks::{
    StackRef, stack_advance_on_conn, stack_change_on_conn, stack_fetch, stack_insert_on_conn,
    stack_lock_on_conn,
};

/// Read a stack. Its tag goes into `If-Match` of a change.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = Stack)))]
pub async fn get_stack(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
) -> Result<Response, ApiError> {
    let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(&stack)).await?;
    let stack: Stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    Ok(tagged(&stack))
}

/// Create or change a stack. Under the name of a deleted one, a new stack begins.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}", tag = "stacks", request_body = PutStack,
    params(("stack" = String, Path, description = "Name; or the id of one that exists"), precondition::IfMatch),
    responses((status = 200, body = Stack, description = "Changed"), (status = 201, body = Stack, description = "Created")))]
pub async fn put_stack(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: PutStack = change.json_or_default()?;
    if let Some(labels) = &wanted.labels {
        check_labels(labels).map_err(|error| ApiError::unreadable(error.to_string()))?;
    }
    if let Some(annotations) = &wanted.annotations {
        check_annotations(annotations).map_err(|error| ApiError::unreadable(error.to_string()))?;
    }
    let named = StackRef::read(&stack);
    let project = change.caller()?.project();
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let created = match &named {
            StackRef::Id(_) => false,
            StackRef::Name(name) => {
                let name: Name = name
                    .parse()
                    .map_err(|error: brokkr_api::names::BadName| ApiError::unreadable(error.to_string()))?;
                stack_insert_on_conn(write.conn(), project, StackId::generate(), name.as_str()).await?
            }
        };
        if created {
            quota_check_on_conn(write.conn(), project, Added::Stack).await?;
        }
        let locked = stack_lock_on_conn(write.conn(), project, &named).await?;
        let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
        if locked.deleted_at.is_some() {
            return Err(ApiError::new(ErrorCode::BRK2008, format!("the stack {} was deleted", locked.name)));
        }
        if !created {
            precondition::stack_itself(&mut write, &change, &locked).await?;
        }
        stack_change_on_conn(write.conn(), &locked, &wanted).await?;
        write.ring(project, Doorbell::Stack(locked.id)).await?;
        let stack: Option<Stack> = stack_fetch(write.conn(), project, &StackRef::Id(locked.id)).await?;
        let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
        write.finish(if created { StatusCode::CREATED } else { StatusCode::OK }, &stack).await
    })
    .await
}

/// How a stack goes.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Parting {
    /// Leave what agents have of it in their clusters: it loses Brokkr's marks and keeps its values.
    #[serde(default)]
    pub keep_resources: bool,
}

/// Delete a stack. Answers with the deletion marker; deleting again answers with the same one.
#[utoipa::path(delete, path = "/api/v1/stacks/{stack}", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), precondition::IfMatch, Parting), responses((status = 200, body = DeploymentObject)))]
pub async fn delete_stack(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    Asked(parting): Asked<Parting>,
    change: Change,
) -> Result<Response, ApiError> {
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    write::run(&broker, &change, Keep::Plain, async |mut write| {
    let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
    let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
    if let (Some(_), Some(newest)) = (locked.deleted_at, locked.newest) {
        let marker = deployment_object_fetch_on_conn(write.conn(), newest).await?;
        let marker = marker.ok_or_else(|| ApiError::not_found("stack"))?;
        return write.finish(StatusCode::OK, &marker).await;
    }
    precondition::stack_itself(&mut write, &change, &locked).await?;
    let nothing = Checksum::of(b"");
    let marker = NewObject {
        checksum: nothing,
        parsed_digest: nothing,
        is_deletion_marker: true,
        keeps_resources: parting.keep_resources,
        resources: 0,
        content: b"",
        submitted_by: &token.name,
        provenance: Provenance::default(),
    };
    let marker = deployment_object_insert_on_conn(write.conn(), &locked, &marker).await?;
    stack_advance_on_conn(write.conn(), &locked, marker.sequence_id, true).await?;
    write.ring(project, Doorbell::Stack(locked.id)).await?;
    tracing::info!(stack_id = %locked.id, stack = locked.name, sequence_id = %marker.sequence_id, "stack deleted");
    let stack = NamedStack { id: locked.id, name: locked.name };
    let event = WebhookEvent::StackDeleted;
    write
        .happened(project, &Happening::to_stack(event, marker.created_at, stack, marker.sequence_id))
        .await?;
    write.finish(StatusCode::OK, &marker).await
    })
    .await
}
