//! Explains why an agent or its stacks are not in the desired state.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::why::AgentWhy;
use brokkr_api::{SequenceId, StackId};
use http::HeaderMap;

use crate::access::Caller;
use crate::domain::envelope::{awaited, desired};
use crate::domain::facts::StackFacts;
use crate::domain::why::{Case, agent_trouble, awaited_rollout};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::{agent_facts, can_see};
use crate::http::headers::position;
use crate::http::stacks::why::{explain, pasts, seen};
use crate::store::agent_upgrades::reports::agent_upgrade_last_of;
use crate::store::presence::presence_events;
use crate::store::rollouts::rollouts_fetch;
use crate::store::stack_status::stack_status_of_agent;

/// The maximum number of stacks in a response: for a silent agent, all of its stacks are stuck.
const STACKS: usize = 100;
const EVENTS: i64 = 10;

/// Explain why an agent is not in the desired state.
///
/// Whether it is active and present, which of its stacks are stuck, and at which hop.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/why", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = AgentWhy)))]
pub async fn agent_why(
    State(broker): BrokerState,
    caller: Caller,
    Path(agent): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Json<AgentWhy>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let agent = agent_facts(&broker.index.snapshot(), &agent)?.clone();
    if !can_see(&broker.index.snapshot(), &caller, agent.id) {
        return Err(ApiError::not_found("agent"));
    }
    let seen = seen(&broker, &agent).await?;
    let events = presence_events(&broker.pool, agent.id, EVENTS).await?;
    // Only stacks of the caller's project.
    let project = caller.project();
    let stacks: BTreeMap<StackId, StackFacts> = {
        let snapshot = broker.index.snapshot();
        let own = snapshot.candidates(&agent).filter(|stack| stack.project == project);
        let concerns =
            |stack: &&StackFacts| desired(&agent, stack).is_some() || awaited(&agent, stack).is_some();
        own.filter(concerns).map(|stack| (stack.id, stack.clone())).collect()
    };
    let ids: Vec<StackId> = stacks.keys().copied().collect();
    let reports = stack_status_of_agent(&broker.pool, project, agent.id, &ids).await?;
    let past = pasts(&broker, project, agent.id, &ids).await?;
    let rollouts: Vec<SequenceId> =
        stacks.values().filter_map(|stack| awaited_rollout(&agent, stack)).collect();
    let rollouts = rollouts_fetch(&broker.pool, project, &rollouts).await?;
    let case = |stack: &StackFacts| {
        let (report, past) = (reports.get(&stack.id), past.of(stack.id));
        let rollout = rollouts.iter().find(|rollout| rollout.stack_id == stack.id);
        explain(&Case { agent: &agent, stack, report, seen: &seen, past, rollout })
    };
    let mut stuck: Vec<_> =
        stacks.values().map(case).filter(|explained| explained.broken.is_some()).collect();
    stuck.sort_by(|one, other| one.stack_name.cmp(&other.stack_name));
    let mut evidence = vec![format!("{} of {} stacks are not in sync", stuck.len(), stacks.len())];
    evidence.extend(stuck.iter().take(3).filter_map(|explained| {
        let broken = explained.broken.as_ref()?;
        Some(format!("{}: not {}: {}", explained.stack_name, broken.hop, broken.message))
    }));
    stuck.truncate(STACKS);
    Ok(Json(AgentWhy {
        agent_id: agent.id,
        agent_name: agent.name.clone(),
        status: agent.status,
        presence: seen.presence,
        last_seen_at: seen.last_seen,
        events,
        broken: agent_trouble(&agent, &seen),
        evidence,
        stacks: stuck,
        affected_stacks: stacks.len() as u64,
        upgrade: agent_upgrade_last_of(&broker.pool, agent.id).await?,
    }))
}
