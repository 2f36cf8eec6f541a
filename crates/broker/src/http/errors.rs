//! Errors across the fleet, grouped by cause: of a project, or of one stack.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::StackId;
use brokkr_api::page::Page;
use brokkr_api::status::ErrorGroup;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::state::Broker;
use crate::store::stacks::{StackRef, stack_fetch};
use crate::store::status_counts::{GroupPlace, error_group_list};

/// What is wrong now, over all stacks and agents: each mistake once, with how often it is there and a few examples.
#[utoipa::path(get, path = "/api/v1/errors", tag = "events", params(Paging),
    responses((status = 200, body = Page<ErrorGroup>)))]
pub async fn list_errors(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<ErrorGroup>>, ApiError> {
    list(&broker, caller.project(), None, &paging).await
}

/// What is wrong with the stack now: each mistake once, with the number of agents and a few examples.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/errors", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<ErrorGroup>)))]
pub async fn list_stack_errors(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<ErrorGroup>>, ApiError> {
    let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    list(&broker, caller.project(), Some(stack.id), &paging).await
}

async fn list(
    broker: &Broker,
    project: &str,
    stack: Option<StackId>,
    paging: &Paging,
) -> Result<Json<Page<ErrorGroup>>, ApiError> {
    let after = paging.after.as_deref().map(read).transpose()?;
    let groups = error_group_list(&broker.pool, project, stack, after, paging.limit()).await?;
    let page = Page::cut(groups, paging.limit(), |(place, _)| written(place));
    Ok(Json(page.map(|(_, group)| group)))
}

fn written(place: &GroupPlace) -> String {
    format!("{}.{}", place.count, URL_SAFE_NO_PAD.encode(&place.key))
}

fn read(text: &str) -> Result<GroupPlace, ApiError> {
    let bad = || ApiError::unreadable("cannot read `after`");
    let (count, key) = text.split_once('.').ok_or_else(bad)?;
    let count: i64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(bad)?;
    let key = URL_SAFE_NO_PAD.decode(key).map_err(|_| bad())?;
    Ok(GroupPlace { count, key })
}
