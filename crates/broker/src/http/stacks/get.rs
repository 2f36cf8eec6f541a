//! One stack, by name or id. A deleted one is found by id, and by name if no living one has it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::stacks::Stack;

use crate::access::Caller;
use crate::broker::Broker;
use crate::http::error::ApiError;
use crate::store::stacks::{StackRef, stack_fetch};

/// Read a stack.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = Stack)))]
pub async fn get_stack(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
) -> Result<Json<Stack>, ApiError> {
    let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(&stack)).await?;
    stack.map(Json).ok_or_else(|| ApiError::not_found("stack"))
}
