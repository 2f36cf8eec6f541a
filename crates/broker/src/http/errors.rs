//! Errors across the fleet, grouped by cause: of a project, or of one stack.

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::StackId;
use brokkr_api::page::Page;
use brokkr_api::status::ErrorGroup;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::paging::{Paging, QueryParams};
use crate::http::stacks::find_stack;
use crate::state::Broker;
use crate::store::status_counts::{GroupCursor, error_group_list};

/// List current errors of all stacks and agents, grouped by cause.
///
/// Each group has its number of occurrences and a few examples; the largest group comes first.
#[utoipa::path(get, path = "/api/v1/errors", tag = "events", params(Paging),
    responses((status = 200, body = Page<ErrorGroup>)))]
pub async fn list_errors(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<ErrorGroup>>> {
    list(&broker, caller.project(), None, &paging).await
}

/// List current errors of a stack, grouped by cause.
///
/// Each group has its number of agents and a few examples; the largest group comes first.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/errors", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<ErrorGroup>)))]
pub async fn list_stack_errors(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<ErrorGroup>>> {
    let stack = find_stack(&broker, caller.project(), &stack).await?;
    list(&broker, caller.project(), Some(stack.id), &paging).await
}

async fn list(
    broker: &Broker,
    project: &str,
    stack: Option<StackId>,
    paging: &Paging,
) -> ApiResult<Json<Page<ErrorGroup>>> {
    let after = paging.after.as_deref().map(decode).transpose()?;
    let groups = error_group_list(&broker.pool, project, stack, after, paging.limit()).await?;
    let page = Page::cut(groups, paging.limit(), |(cursor, _)| encode(cursor));
    Ok(Json(page.map(|(_, group)| group)))
}

fn encode(cursor: &GroupCursor) -> String {
    format!("{}.{}", cursor.count, URL_SAFE_NO_PAD.encode(&cursor.key))
}

fn decode(text: &str) -> ApiResult<GroupCursor> {
    let bad = || ApiError::invalid_request("invalid `after`");
    let (count, key) = text.split_once('.').ok_or_else(bad)?;
    let count: i64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(bad)?;
    let key = URL_SAFE_NO_PAD.decode(key).map_err(|_| bad())?;
    Ok(GroupCursor { count, key })
}
