//! Previews of selectors, answered from the index.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::{Page, Sort};
use brokkr_api::selector::{SelectedAgent, SelectorPreview, StackPreview};
use brokkr_api::{ErrorCode, Selector, StackId};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::headers::position;
use crate::http::paging::{Asked, limit};
use crate::index::{Picture, Place};
use crate::state::Broker;
use crate::store::stacks::{StackRef, stack_fetch};

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The selector, as stacks have them.
    #[param(value_type = String)]
    selector: String,
    /// Name or id of a stack: tells what it would gain, keep and lose if this became its one selector.
    stack: Option<String>,
    /// Where to read on: `next` of the page before.
    after: Option<String>,
    /// How many names, at most; 500 is the most.
    limit: Option<u32>,
}

/// Whom a selector would reach: how many agents, and their names, page by page. Agents that are not granted to the
/// project do not count: no stack of it reaches them.
#[utoipa::path(get, path = "/api/v1/selectors/preview", tag = "selectors", params(Question),
    responses((status = 200, body = SelectorPreview)))]
pub async fn preview_selector(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(question): Asked<Question>,
    headers: HeaderMap,
) -> Result<Json<SelectorPreview>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let bad = |error: brokkr_api::selector::BadSelector| ApiError::unreadable(error.to_string());
    let selector: Selector = question.selector.parse().map_err(bad)?;
    let stack = match &question.stack {
        None => None,
        Some(named) => {
            let found = stack_fetch(&broker.pool, caller.project(), &StackRef::read(named)).await?;
            Some(found.ok_or_else(|| ApiError::not_found("stack"))?.id)
        }
    };
    let picture = broker.index.picture();
    let found = picture.select(&selector) & picture.granted(caller.project());
    let limit = limit(question.limit);
    let after = question.after.map(Place::Name);
    let page = picture.page(&found, Sort::Name, after.as_ref(), limit);
    let page: Vec<SelectedAgent> = page
        .into_iter()
        .map(|agent| Ok(SelectedAgent { id: agent.id, name: agent.name.parse()? }))
        .collect::<Result<_, brokkr_api::names::BadName>>()
        .map_err(|error| ApiError::new(ErrorCode::BRK9001, "a stored name is bad").because(error))?;
    Ok(Json(SelectorPreview {
        agents: found.len(),
        stack: stack.and_then(|stack| of_stack(&picture, stack, selector)),
        page: Page::cut(page, limit, |agent: &SelectedAgent| agent.name.to_string()),
    }))
}

fn of_stack(picture: &Picture, stack: StackId, selector: Selector) -> Option<StackPreview> {
    let stack = picture.stack(stack)?;
    let named: Vec<_> = stack.targets.iter().map(|target| target.agent).collect();
    let there = picture.retargeting(stack, &named, &[selector]);
    Some(StackPreview { gained: there.gained.len(), kept: there.kept.len(), lost: there.lost.len() })
}
