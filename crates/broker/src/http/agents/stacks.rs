//! The stacks of one agent: what it has, what it should have, and why.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::StackId;
use brokkr_api::agents::Why;
use brokkr_api::fleet::AgentStack;
use brokkr_api::page::Page;
use http::HeaderMap;

use crate::access::Caller;
use crate::domain::targeting::reasons;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::{agent_facts, can_see};
use crate::http::headers::position;
use crate::http::paging::{Paging, QueryParams};
use crate::http::stacks::status::{StackNames, StackOnAgent, status};
use crate::store::stack_status::stack_status_of_agent;

/// List the stacks of an agent, by name: what it has, what it should have, and why.
///
/// Contains the stacks of the project that reach the agent, or that it still holds.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/stacks", tag = "agents",
    params(("agent" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<AgentStack>)))]
pub async fn list_agent_stacks(
    State(broker): BrokerState,
    caller: Caller,
    Path(agent): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
    headers: HeaderMap,
) -> ApiResult<Json<Page<AgentStack>>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let (id, name, stacks) = {
        let snapshot = broker.index.snapshot();
        let agent = agent_facts(&snapshot, &agent)?;
        if !can_see(&snapshot, &caller, agent.id) {
            return Err(ApiError::not_found("agent"));
        }
        // Stacks may repeat among the candidates.
        let own = snapshot.candidates(agent).filter(|stack| stack.project == caller.project());
        let mut stacks = BTreeMap::new();
        for stack in own {
            let known = StackOnAgent::of(&snapshot, stack.id, agent.id);
            if known.is_affected() {
                let because: Vec<Why> = reasons(agent, stack).into_iter().map(|reason| reason.why).collect();
                stacks.insert((stack.name.clone(), stack.id), (known, because));
            }
        }
        (agent.id, agent.name.clone(), stacks)
    };
    let limit = paging.limit();
    let after = paging.after.as_deref();
    let page = stacks.into_iter().filter(|(key, _)| after.is_none_or(|after| cursor(key).as_str() > after));
    let page: Vec<_> = page.take(limit + 1).collect();
    let ids: Vec<StackId> = page.iter().map(|((_, stack), _)| *stack).collect();
    let mut reports = stack_status_of_agent(&broker.pool, caller.project(), id, &ids).await?;
    let page = Page::cut(page, limit, |(key, _)| cursor(key));
    Ok(Json(page.map(|((stack_name, stack), (known, because))| {
        let names = StackNames { project: caller.project(), id: stack, name: &stack_name };
        let holds = known.holds();
        AgentStack { status: status(names, name.clone(), known, reports.remove(&stack)), because, holds }
    })))
}

/// Returns the sort key and cursor of a stack.
fn cursor((name, id): &(String, StackId)) -> String {
    format!("{name} {id}")
}
