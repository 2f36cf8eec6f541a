//! How a stack is doing on each agent: one line per agent that it reaches, that holds it, or that reported on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::AgentStatus;
use brokkr_api::page::Page;
use brokkr_api::report::Hops;
use brokkr_api::stacks::Stack;
use brokkr_api::status::{StackStatus, State as StackState};
use brokkr_api::{AgentId, StackId};
use http::HeaderMap;

use crate::access::Caller;
use crate::broker::Broker;
use crate::domain::envelope::{Wanted, wanted};
use crate::domain::status::state;
use crate::http::error::ApiError;
use crate::http::headers::position;
use crate::http::paging::{Asked, Paging};
use crate::store::stack_status::{LastReport, stack_status_fetch, stack_status_reporters};
use crate::store::stacks::{StackRef, stack_fetch};

/// What the index knows about the stack on one agent.
#[derive(Clone, Debug)]
struct Known {
    agent: AgentId,
    active: bool,
    wanted: Option<Wanted>,
}

/// The state of a stack on each agent, by the agent's name.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<StackStatus>)))]
pub async fn stack_status(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(paging): Asked<Paging>,
    headers: HeaderMap,
) -> Result<Json<Page<StackStatus>>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let project = caller.project();
    let stack = stack_fetch(&broker.pool, project, &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let (after, limit) = (paging.after.as_deref(), paging.limit());
    let mut lines = concerned(&broker, stack.id, after, limit);
    for (name, agent) in stack_status_reporters(&broker.pool, project, stack.id, after, limit).await? {
        lines.entry(name).or_insert(Known { agent, active: true, wanted: None });
    }
    let lines: Vec<(String, Known)> = lines.into_iter().take(limit + 1).collect();
    let agents: Vec<AgentId> = lines.iter().map(|(_, known)| known.agent).collect();
    let mut reports = stack_status_fetch(&broker.pool, project, stack.id, &agents).await?;
    let statuses = lines.into_iter().map(|(name, known)| {
        let report = reports.remove(&known.agent);
        status(&stack, name, known, report)
    });
    Ok(Json(Page::cut(statuses.collect(), limit, |status| status.agent_name.clone())))
}

/// The first agents, by name after the given one, that the stack reaches or that hold it.
fn concerned(broker: &Broker, stack: StackId, after: Option<&str>, limit: usize) -> BTreeMap<String, Known> {
    let picture = broker.index.picture();
    let Some(stack) = picture.stack(stack) else { return BTreeMap::new() };
    let mut agents = picture.reached(stack);
    agents.extend(picture.holders(stack.id));
    agents.retain(|agent| after.is_none_or(|after| agent.name.as_str() > after));
    // One more than the page, and each may be there twice. A stack may reach the whole fleet.
    let enough = 2 * (limit + 1);
    if agents.len() > enough {
        agents.select_nth_unstable_by(enough, |one, other| one.name.cmp(&other.name));
        agents.truncate(enough);
    }
    agents
        .into_iter()
        .map(|agent| {
            let active = agent.status == AgentStatus::Active;
            (agent.name.clone(), Known { agent: agent.id, active, wanted: wanted(agent, stack) })
        })
        .collect()
}

fn status(stack: &Stack, agent_name: String, known: Known, report: Option<LastReport>) -> StackStatus {
    let wanted = known.wanted.as_ref().map(|wanted| (wanted.sequence_id(), wanted.removal));
    let reported = report.as_ref().map(|report| (report.sequence_id, report.transition));
    let state = state(wanted, reported);
    let mut status = StackStatus {
        project: stack.project.clone(),
        stack_id: stack.id,
        stack_name: stack.name.to_string(),
        agent_id: known.agent,
        agent_name,
        wanted_sequence_id: wanted.map(|(sequence, _)| sequence),
        sequence_id: reported.map(|(sequence, _)| sequence),
        state,
        ready: 0,
        total: 0,
        reason: String::new(),
        message: String::new(),
        objects: Vec::new(),
        conditions: Vec::new(),
        hops: Hops::default(),
    };
    // What was reported about an older object says nothing about the wanted one.
    let about_wanted = !matches!(state, StackState::Pending | StackState::Removing);
    if let Some(report) = report.filter(|_| about_wanted) {
        status.ready = report.ready;
        status.total = report.total;
        status.reason = report.reason;
        status.message = report.message;
        status.objects = report.objects;
        status.conditions = report.conditions;
        status.hops = report.hops;
    }
    if let Some(wanted) = &known.wanted {
        status.hops.published.get_or_insert(wanted.object.published_at);
        status.hops.targeted.get_or_insert(wanted.targeted_at);
        status.hops.released.get_or_insert(wanted.released_at);
    }
    if !known.active && !about_wanted {
        "AgentInactive".clone_into(&mut status.reason);
        "the agent is INACTIVE and gets no deployment objects".clone_into(&mut status.message);
    }
    status
}
