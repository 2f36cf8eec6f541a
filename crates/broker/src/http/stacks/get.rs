//! One stack, by name or id. A deleted one is found by id, and by name if no living one has it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::stacks::Stack;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::precondition::tagged;
use crate::store::stacks::{StackRef, stack_fetch};

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
