//! Deletes a stack: its last deployment object is a marker that says so, and agents carry it out.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::webhooks::WebhookEvent;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::broker::Broker;
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::paging::Asked;
use crate::http::precondition;
use crate::http::write::{Begun, Keep, Write};
use crate::store::deployment_objects::{
    NewObject, deployment_object_fetch_on_conn, deployment_object_insert_on_conn,
};
use crate::store::outbox::Doorbell;
use crate::store::stacks::{StackRef, stack_advance_on_conn, stack_lock_on_conn};

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
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
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
}
