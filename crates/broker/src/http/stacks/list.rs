//! Lists living stacks by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;

use crate::access::Caller;
use crate::broker::Broker;
use crate::http::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::stacks::stack_list;

/// List the living stacks, by name.
#[utoipa::path(get, path = "/api/v1/stacks", tag = "stacks", params(Paging),
    responses((status = 200, body = Page<Stack>)))]
pub async fn list_stacks(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<Stack>>, ApiError> {
    let limit = paging.limit();
    let stacks = stack_list(&broker.pool, caller.project(), paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(stacks, limit, |stack| stack.name.to_string())))
}
