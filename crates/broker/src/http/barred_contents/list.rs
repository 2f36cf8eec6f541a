//! Lists the contents that a stack refuses.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::objects::BarredContent;
use brokkr_api::page::Page;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::barred_contents::barred_content_list;
use crate::store::stacks::{StackRef, stack_fetch};

/// List the contents that are barred on a stack, the latest first.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/barred-contents", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<BarredContent>)))]
pub async fn list_barred_contents(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<BarredContent>>, ApiError> {
    let project = caller.project();
    let stack = stack_fetch(&broker.pool, project, &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let barred = barred_content_list(&broker.pool, project, stack.id, below, limit).await?;
    Ok(Json(Page::cut(barred, limit, |one| one.sequence_id.to_string())))
}
