//! An agent hands over a content that the database lost: checked as any submission, and published as a new object.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::objects::{DeploymentObject, Provenance};
use http::StatusCode;

use super::wanted_contents::Wanted;
use crate::broker::Broker;
use crate::http::change::Change;
use crate::http::deployment_objects::submit::read;
use crate::http::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::deployment_objects::{NewObject, deployment_object_insert_on_conn};
use crate::store::outbox::Doorbell;
use crate::store::restore::{restore_fulfil_on_conn, restore_stack_on_conn, restore_told_on_conn};
use crate::store::stacks::{StackRef, stack_advance_on_conn, stack_lock_on_conn};

/// Hand over a content that was asked for: exactly the bytes that the agent once got.
#[utoipa::path(put, path = "/api/v1/agents/{agent}/wanted-contents/{stack}", tag = "agents",
    params(("agent" = String, Path, description = "Id"), ("stack" = String, Path, description = "Id")),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 201, body = DeploymentObject)))]
pub async fn hand_over_content(
    State(broker): State<Arc<Broker>>,
    Path(wanted): Path<Wanted>,
    change: Change,
) -> Result<Response, ApiError> {
    let (agent, stack) = (change.caller()?.agent()?.id, wanted.stack()?);
    if broker.standing.hold().is_some() {
        return Err(broker.held());
    }
    let reading = read(change.body.clone()).await?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let wish = restore_fulfil_on_conn(write.conn(), stack, agent).await?;
    let wish =
        wish.ok_or_else(|| ApiError::new(ErrorCode::BRK3006, "this content is not wanted of this agent"))?;
    if wish.checksum != reading.checksum {
        let detail =
            format!("this content has the checksum {}, {} is wanted", reading.checksum, wish.checksum);
        return Err(ApiError::new(ErrorCode::BRK3006, detail));
    }
    let named = StackRef::Id(stack);
    let mut locked = stack_lock_on_conn(write.conn(), &wish.project, &named).await?;
    if locked.is_none() {
        let told = restore_told_on_conn(write.conn(), stack, Some(agent)).await?;
        let told =
            told.ok_or_else(|| ApiError::new(ErrorCode::BRK3006, "the agent no longer holds the stack"))?;
        restore_stack_on_conn(write.conn(), &wish.project, stack, &told.stack_name, false).await.map_err(
            |error| match error.is_taken() {
                true => {
                    ApiError::new(ErrorCode::BRK2002, "another stack has this name by now").because(error)
                }
                false => error.into(),
            },
        )?;
        locked = stack_lock_on_conn(write.conn(), &wish.project, &named).await?;
    }
    let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
    if locked.deleted_at.is_some() {
        return Err(ApiError::new(ErrorCode::BRK2008, format!("the stack {} was deleted", locked.name)));
    }
    let new = NewObject {
        checksum: reading.checksum,
        parsed_digest: reading.parsed_digest,
        is_deletion_marker: false,
        keeps_resources: false,
        resources: reading.resources,
        content: &change.body,
        submitted_by: &wish.wanted_by,
        provenance: Provenance::default(),
    };
    let object = deployment_object_insert_on_conn(write.conn(), &locked, &new).await?;
    stack_advance_on_conn(write.conn(), &locked, object.sequence_id, false).await?;
    write.ring(&locked.project, Doorbell::Stack(locked.id)).await?;
    tracing::info!(stack_id = %locked.id, %agent, sequence_id = %object.sequence_id, "taken back from an agent");
    write.finish(StatusCode::CREATED, &object).await
}
