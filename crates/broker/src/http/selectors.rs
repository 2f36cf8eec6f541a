//! Previews of selectors, answered from the index.

use axum::Json;
use axum::extract::State;
use brokkr_api::page::{Page, Sort};
use brokkr_api::selector::{SelectedAgent, SelectorPreview, StackPreview};
use brokkr_api::{ErrorCode, Selector, StackId};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::headers::position;
use crate::http::paging::{QueryParams, limit};
use crate::http::stacks::find_stack;
use crate::index::{AgentCursor, Snapshot};

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PreviewQuery {
    /// The selector to preview.
    #[param(value_type = String)]
    selector: String,
    /// Name or id of a stack: the response counts the agents that it would gain, keep and lose if this became its
    /// only selector.
    stack: Option<String>,
    /// Return items after this cursor: `next` of the previous page.
    after: Option<String>,
    /// Maximum number of names; at most 500.
    limit: Option<u32>,
}

/// Preview which agents a selector matches.
///
/// The response has their number and a page of names. Only agents that are granted to the project count: its stacks
/// reach no others.
#[utoipa::path(get, path = "/api/v1/selectors/preview", tag = "selectors", params(PreviewQuery),
    responses((status = 200, body = SelectorPreview)))]
pub async fn preview_selector(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<PreviewQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<SelectorPreview>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let bad = |error: brokkr_api::selector::BadSelector| ApiError::invalid_request(error.to_string());
    let selector: Selector = query.selector.parse().map_err(bad)?;
    let stack = match &query.stack {
        None => None,
        Some(named) => Some(find_stack(&broker, caller.project(), named).await?.id),
    };
    let snapshot = broker.index.snapshot();
    let found = snapshot.select(&selector) & snapshot.granted(caller.project());
    let limit = limit(query.limit);
    let after = query.after.map(AgentCursor::Name);
    let page = snapshot.page(&found, Sort::Name, after.as_ref(), limit);
    let page: Vec<SelectedAgent> = page
        .into_iter()
        .map(|agent| Ok(SelectedAgent { id: agent.id, name: agent.name.parse()? }))
        .collect::<Result<_, brokkr_api::names::BadName>>()
        .map_err(|error| ApiError::new(ErrorCode::BRK9001, "a stored name is invalid").because(error))?;
    Ok(Json(SelectorPreview {
        agents: found.len(),
        stack: stack.and_then(|stack| of_stack(&snapshot, stack, selector)),
        page: Page::cut(page, limit, |agent: &SelectedAgent| agent.name.to_string()),
    }))
}

fn of_stack(snapshot: &Snapshot, stack: StackId, selector: Selector) -> Option<StackPreview> {
    let stack = snapshot.stack(stack)?;
    let named: Vec<_> = stack.targets.iter().map(|target| target.agent).collect();
    let preview = snapshot.retargeting(stack, &named, &[selector]);
    Some(StackPreview { gained: preview.gained.len(), kept: preview.kept.len(), lost: preview.lost.len() })
}
