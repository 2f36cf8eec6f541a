//! Lifts the bar on a content, so that it can be submitted again.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ids::Checksum;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::barred_contents::barred_content_delete_on_conn;
use crate::store::stacks::{StackRef, stack_lock_on_conn};

/// Let a barred content be submitted again.
#[utoipa::path(delete, path = "/api/v1/stacks/{stack}/barred-contents/{checksum}", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), ("checksum" = String, Path, description = "SHA-256 of the content, in hex")),
    responses((status = 204, description = "It may be submitted again")))]
pub async fn delete_barred_content(
    State(broker): State<Arc<Broker>>,
    Path((stack, checksum)): Path<(String, String)>,
    change: Change,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("barred content");
    let checksum: Checksum = checksum.parse().map_err(|_| missing())?;
    let project = change.caller()?.project();
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
    let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
    if !barred_content_delete_on_conn(write.conn(), &locked, checksum).await? {
        return Err(missing());
    }
    write.noting(Some(checksum), None);
    write.finish_empty().await
}
