//! Takes in a new version of a stack. Reading, checking and hashing come before the lock.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::protocol::header;
use brokkr_api::webhooks::WebhookEvent;
use brokkr_manifest::{Budget, ManifestErrors};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use utoipa::IntoParams;

use crate::broker::Broker;
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::http::barred_contents::refusal;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::precondition;
use crate::http::reading::reading;
use crate::http::write::{Begun, Keep, Write};
use crate::store::barred_contents::barred_content_find_on_conn;
use crate::store::deployment_objects::{NewObject, deployment_object_insert_on_conn};
use crate::store::outbox::Doorbell;
use crate::store::stacks::{StackRef, stack_advance_on_conn, stack_lock_on_conn};

/// What a manifest turned out to be.
pub struct Reading {
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub resources: i32,
}

/// Documents the headers that carry a [`Provenance`].
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct ProvenanceHeaders {
    /// Why the version is submitted: percent-encoded UTF-8, at most 1024 characters.
    #[param(rename = "brokkr-message")]
    _message: Option<String>,
    /// The Git commit that the content comes from: 7 to 64 hexadecimal digits.
    #[param(rename = "brokkr-commit")]
    _commit: Option<String>,
}

/// Submit a new version of a stack: the complete YAML, kept exactly as it is.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/deployment-objects", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), precondition::IfMatch, ProvenanceHeaders),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 201, body = DeploymentObject)))]
pub async fn submit_deployment_object(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    let provenance = provenance(&change.headers)?;
    if let Some(again) = Write::again(&broker, &change, Keep::Plain).await? {
        return Ok(again);
    }
    let bytes = u64::try_from(change.body.len()).unwrap_or(u64::MAX);
    broker.usage.submission(&broker.pool, project, bytes).await?;
    let reading = read(change.body.clone()).await?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
    let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
    if locked.deleted_at.is_some() {
        return Err(ApiError::new(ErrorCode::BRK2008, format!("the stack {} was deleted", locked.name)));
    }
    precondition::stack(&mut write, &change, &locked).await?;
    if let Some(bar) = barred_content_find_on_conn(write.conn(), &locked, reading.checksum).await? {
        return Err(refusal(&bar));
    }
    let new = NewObject {
        checksum: reading.checksum,
        parsed_digest: reading.parsed_digest,
        is_deletion_marker: false,
        keeps_resources: false,
        resources: reading.resources,
        content: &change.body,
        submitted_by: &token.name,
        provenance,
    };
    let object = deployment_object_insert_on_conn(write.conn(), &locked, &new).await?;
    stack_advance_on_conn(write.conn(), &locked, object.sequence_id, false).await?;
    write.noting(None, Some(object.checksum));
    write.ring(project, Doorbell::Stack(locked.id)).await?;
    let stack = NamedStack { id: locked.id, name: locked.name };
    let event = WebhookEvent::ObjectSubmitted;
    write
        .happened(project, &Happening::to_stack(event, object.created_at, stack, object.sequence_id))
        .await?;
    write.finish(StatusCode::CREATED, &object).await
}

fn provenance(headers: &HeaderMap) -> Result<Provenance, ApiError> {
    let text = |name: &'static str| -> Result<Option<String>, ApiError> {
        let Some(value) = headers.get(name) else { return Ok(None) };
        let decoded = percent_encoding::percent_decode(value.as_bytes()).decode_utf8();
        let text = decoded.map_err(|_| ApiError::unreadable(format!("the header {name} is not UTF-8")))?;
        Ok(Some(text.into_owned()))
    };
    let (message, commit) = (text(header::MESSAGE)?, text(header::COMMIT)?);
    Provenance::new(message.as_deref(), commit.as_deref())
        .map_err(|error| ApiError::unreadable(error.to_string()))
}

pub async fn read(body: Bytes) -> Result<Reading, ApiError> {
    let read = reading("the manifest could not be read", move || {
        brokkr_manifest::parse(&body, &Budget::default()).map(|manifest| Reading {
            checksum: Checksum::of(&body),
            parsed_digest: Checksum(manifest.digest()),
            resources: i32::try_from(manifest.objects.len()).unwrap_or(i32::MAX),
        })
    });
    read.await?.map_err(|errors| refused(&errors))
}

fn refused(errors: &ManifestErrors) -> ApiError {
    let count = errors.len();
    let detail = if count == 1 {
        "the manifest has an error".to_owned()
    } else {
        format!("the manifest has {count} errors")
    };
    ApiError::new(ErrorCode::BRK2004, detail).with_errors(errors.iter().map(ToString::to_string).collect())
}
