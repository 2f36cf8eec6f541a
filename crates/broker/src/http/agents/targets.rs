//! Stacks that target an agent, and why.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Target, Why};
use brokkr_api::page::Page;
use http::HeaderMap;

use crate::access::Caller;
use crate::domain::release::released_to;
use crate::domain::targeting::reasons;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::{agent_facts, can_see, can_see_all};
use crate::http::headers::position;
use crate::http::paging::{Paging, QueryParams};
use crate::state::Broker;

/// List the stacks that target an agent.
///
/// Each with the reason: the stack names the agent, or a selector matches its labels. A token sees the stacks of its
/// project; admins and the agent itself see all of them.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/targets", tag = "agents",
    params(("agent" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<Target>)))]
pub async fn list_targets(
    State(broker): BrokerState,
    caller: Caller,
    Path(agent): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
    headers: HeaderMap,
) -> ApiResult<Json<Page<Target>>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let mut targets = targets(&broker, &caller, &agent)?;
    targets.sort_by_key(key);
    targets.dedup();
    if let Some(after) = &paging.after {
        targets.retain(|target| key(target).as_str() > after.as_str());
    }
    Ok(Json(Page::cut(targets, paging.limit(), key)))
}

fn targets(broker: &Broker, caller: &Caller, agent: &str) -> ApiResult<Vec<Target>> {
    let snapshot = broker.index.snapshot();
    let agent = agent_facts(&snapshot, agent)?;
    if !can_see(&snapshot, caller, agent.id) {
        return Err(ApiError::not_found("agent"));
    }
    let all = matches!(caller, Caller::Agent(_)) || can_see_all(caller);
    let mut targets = Vec::new();
    for stack in snapshot.candidates(agent).filter(|stack| all || stack.project == caller.project()) {
        for reason in reasons(agent, stack) {
            let stack_name = stack
                .name
                .parse()
                .map_err(|_| ApiError::new(ErrorCode::BRK9001, "a stored name is invalid"))?;
            targets.push(Target {
                project: stack.project.clone(),
                stack_id: stack.id,
                stack_name,
                sequence_id: released_to(agent, stack).map(|object| object.sequence_id),
                why: reason.why,
            });
        }
    }
    Ok(targets)
}

/// Returns the sort key and cursor of a target.
fn key(target: &Target) -> String {
    let why = match &target.why {
        Why::Explicit => String::new(),
        Why::Selector { selector } => selector.to_string(),
    };
    format!("{} {} {why}", target.stack_name, target.stack_id)
}
