//! What targets an agent, and why.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Target, Why};
use brokkr_api::page::Page;
use http::HeaderMap;

use super::{sees, sees_all};
use crate::access::Caller;
use crate::domain::targeting::{reasons, released_to};
use crate::error::ApiError;
use crate::http::headers::position;
use crate::http::paging::{Asked, Paging};
use crate::state::Broker;
use crate::store::agents::AgentRef;

/// List what targets the agent, and why: named by the stack, or matched by which selector. A token sees the stacks of
/// its project, an admin and the agent itself all of them.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/targets", tag = "agents",
    params(("agent" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<Target>)))]
pub async fn list_targets(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(agent): Path<String>,
    Asked(paging): Asked<Paging>,
    headers: HeaderMap,
) -> Result<Json<Page<Target>>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let mut targets = targets(&broker, &caller, &AgentRef::read(&agent))?;
    targets.sort_by_key(key);
    targets.dedup();
    if let Some(after) = &paging.after {
        targets.retain(|target| key(target).as_str() > after.as_str());
    }
    Ok(Json(Page::cut(targets, paging.limit(), key)))
}

fn targets(broker: &Broker, caller: &Caller, agent: &AgentRef) -> Result<Vec<Target>, ApiError> {
    let picture = broker.index.picture();
    let agent = match agent {
        AgentRef::Id(id) => picture.agent(*id),
        AgentRef::Name(name) => picture.agent_named(name),
    };
    let agent = agent.filter(|agent| sees(&picture, caller, agent.id));
    let agent = agent.ok_or_else(|| ApiError::not_found("agent"))?;
    let all = matches!(caller, Caller::Agent(_)) || sees_all(caller);
    let mut targets = Vec::new();
    for stack in picture.candidates(agent).filter(|stack| all || stack.project == caller.project()) {
        for reason in reasons(agent, stack) {
            let stack_name =
                stack.name.parse().map_err(|_| ApiError::new(ErrorCode::BRK9001, "a stored name is bad"))?;
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

/// The order of the list, and where to read on.
fn key(target: &Target) -> String {
    let why = match &target.why {
        Why::Explicit => String::new(),
        Why::Selector { selector } => selector.to_string(),
    };
    format!("{} {} {why}", target.stack_name, target.stack_id)
}
