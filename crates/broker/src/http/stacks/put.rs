//! Creates a stack if there is none of that name; changes what is given.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::names::{check_annotations, check_labels};
use brokkr_api::stacks::{PutStack, Stack};
use brokkr_api::{ErrorCode, Name, StackId};
use http::StatusCode;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::precondition;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::http::write::{Begun, Keep, Write};
use crate::store::outbox::OutboxNotification;
use crate::store::stacks::{
    StackRef, stack_change_on_conn, stack_fetch, stack_insert_on_conn, stack_lock_on_conn,
};

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
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
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
    write.notify(project, OutboxNotification::Stack(locked.id)).await?;
    let stack: Option<Stack> = stack_fetch(write.conn(), project, &StackRef::Id(locked.id)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    write.finish(if created { StatusCode::CREATED } else { StatusCode::OK }, &stack).await
}
