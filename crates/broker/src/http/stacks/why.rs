//! Explains why a stack is not in the desired state on an agent, and lists the hops of its objects there.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::page::Page;
use brokkr_api::selector::Selector;
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::Role;
use brokkr_api::why::{Cause, SequenceHops, StackWhy};
use brokkr_api::{AgentId, SequenceId, StackId};
use http::HeaderMap;
use jiff::Timestamp;

use crate::access::Caller;
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::presence::{POLL_SECONDS, presence};
use crate::domain::why::{AgentContact, Case, Past, Refused, awaited_rollout, why, widened_grant};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::{agent_facts, can_see};
use crate::http::headers::position;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::stacks::find_stack;
use crate::index::Snapshot;
use crate::state::Broker;
use crate::store::StoreError;
use crate::store::deployment_objects::deployment_object_rollable;
use crate::store::grants::grants_of_project;
use crate::store::hops::hops_list;
use crate::store::presence::presence_fetch;
use crate::store::restore::restore_ahead_of;
use crate::store::rollouts::rollout_fetch;
use crate::store::stack_status::stack_status_fetch;
use crate::store::status_counts::status_counts_of_failing;

/// Explain why a stack is not in the desired state on an agent.
///
/// The response has the chain of hops, the first one that is not passed, its cause, and the evidence.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/agents/{agent}/why", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), ("agent" = String, Path, description = "Name or id")),
    responses((status = 200, body = StackWhy)))]
pub async fn stack_why(
    State(broker): BrokerState,
    caller: Caller,
    Path((stack, agent)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult<Json<StackWhy>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let (stack, agent) = named(&broker, &caller, &stack, &agent).await?;
    let seen = seen(&broker, &agent).await?;
    let reports = stack_status_fetch(&broker.pool, &stack.project, stack.id, &[agent.id]).await?;
    let past = pasts(&broker, &stack.project, agent.id, &[stack.id]).await?;
    let facts = {
        let snapshot = broker.index.snapshot();
        snapshot.stack(stack.id).cloned().unwrap_or_else(|| deleted_facts(&snapshot, &stack))
    };
    let (report, past) = (reports.get(&agent.id), past.of(stack.id));
    let rollout = match awaited_rollout(&agent, &facts) {
        Some(rollout) => rollout_fetch(&broker.pool, &stack.project, rollout).await?,
        None => None,
    };
    let case = Case { agent: &agent, stack: &facts, report, seen: &seen, past, rollout: rollout.as_ref() };
    let mut explained = explain(&case);
    // Only admins may see and change grants.
    let may_grant = matches!(&caller, Caller::Token(token) if token.role.includes(Role::Admin));
    if let Some(broken) =
        explained.broken.as_mut().filter(|broken| broken.cause == Cause::NotGranted && may_grant)
        && let Some(report) = report
    {
        let grants = grants_of_project(&broker.pool, &stack.project).await?;
        let selected = |selector: &Selector| broker.index.snapshot().select(selector).len();
        broken.command = widened_grant(report, &agent, &grants, selected);
    }
    Ok(Json(explained))
}

/// List the deployment objects of a stack on an agent, newest first.
///
/// Each with the times of its hops and its last report.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/agents/{agent}/hops", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), ("agent" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<SequenceHops>)))]
pub async fn stack_hops(
    State(broker): BrokerState,
    caller: Caller,
    Path((stack, agent)): Path<(String, String)>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<SequenceHops>>> {
    let (stack, agent) = named(&broker, &caller, &stack, &agent).await?;
    let below = cursor(paging.after.as_deref())?;
    let limit = paging.limit();
    let objects = hops_list(&broker.pool, &stack.project, stack.id, agent.id, below, limit).await?;
    Ok(Json(Page::cut(objects, limit, |object| object.sequence_id.to_string())))
}

async fn named(broker: &Broker, caller: &Caller, stack: &str, agent: &str) -> ApiResult<(Stack, AgentFacts)> {
    let stack = find_stack(broker, caller.project(), stack).await?;
    let agent = agent_facts(&broker.index.snapshot(), agent)?.clone();
    // The project knows an agent that its stack names, even if the grant was withdrawn since.
    let is_named = stack.targets.agents.contains(&agent.name);
    if !is_named && !can_see(&broker.index.snapshot(), caller, agent.id) {
        return Err(ApiError::not_found("agent"));
    }
    Ok((stack, agent))
}

/// Returns the last contact with the agent: the latest that this replica has seen or any replica has stored.
pub async fn seen(broker: &Broker, agent: &AgentFacts) -> Result<AgentContact, StoreError> {
    let stored = presence_fetch(&broker.pool, agent.id).await?;
    let last_seen =
        stored.as_ref().and_then(|stored| stored.last_seen_at).max(broker.presence.last_seen(agent.id));
    let now = Timestamp::now();
    let poll_seconds = stored.as_ref().map_or(POLL_SECONDS, |stored| stored.poll_seconds);
    let refused = [broker.presence.last_refusal(agent.id), stored.and_then(|stored| stored.refused)];
    Ok(AgentContact {
        presence: presence(last_seen, poll_seconds, now),
        last_seen,
        poll_seconds,
        refused: refused.into_iter().flatten().max_by_key(|refused: &Refused| refused.at),
        hold: broker.restore.hold().map(|hold| hold.because),
        now,
    })
}

/// The history of stacks, and how widespread their problems are.
#[derive(Debug)]
pub struct Pasts {
    rollable: HashSet<StackId>,
    ahead: HashMap<StackId, SequenceId>,
    targeted: HashMap<StackId, u64>,
    failing: HashMap<StackId, u64>,
    /// Agents that hold the stack although it does not reach them. Their reports count as failing, too.
    out_of_reach: HashMap<StackId, u64>,
}

impl Pasts {
    pub fn of(&self, stack: StackId) -> Past {
        let of = |counts: &HashMap<StackId, u64>| counts.get(&stack).copied().unwrap_or_default();
        Past {
            earlier: self.rollable.contains(&stack),
            ahead: self.ahead.get(&stack).copied(),
            targeted: of(&self.targeted),
            failing: of(&self.failing).saturating_sub(of(&self.out_of_reach)),
        }
    }
}

pub async fn pasts(
    broker: &Broker,
    project: &str,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<Pasts, StoreError> {
    let (targeted, out_of_reach) = {
        let snapshot = broker.index.snapshot();
        let known = stacks.iter().filter_map(|stack| snapshot.stack(*stack));
        known
            .map(|stack| {
                let (targeted, out_of_reach) =
                    (snapshot.reach(stack).len(), snapshot.holders_out_of_reach(stack));
                ((stack.id, targeted), (stack.id, out_of_reach))
            })
            .unzip()
    };
    Ok(Pasts {
        rollable: deployment_object_rollable(&broker.pool, project, stacks).await?,
        ahead: restore_ahead_of(&broker.pool, agent, stacks).await?,
        targeted,
        out_of_reach,
        failing: status_counts_of_failing(&broker.pool, project, stacks).await?,
    })
}

/// Returns facts for a stack that is not in the index: deleted, and held by no agent.
fn deleted_facts(snapshot: &Snapshot, stack: &Stack) -> StackFacts {
    let mut facts = StackFacts::new(stack.project.clone(), stack.id, stack.name.to_string());
    facts.grants = snapshot.project_grants(&stack.project);
    facts.deleted = stack.deleted_at.is_some();
    facts
}

pub fn explain(case: &Case<'_>) -> StackWhy {
    let verdict = why(case);
    let Case { agent, stack, report, .. } = *case;
    StackWhy {
        project: stack.project.clone(),
        stack_id: stack.id,
        stack_name: stack.name.clone(),
        agent_id: agent.id,
        agent_name: agent.name.clone(),
        state: verdict.state,
        wanted_sequence_id: verdict.wanted,
        sequence_id: report.map(|report| report.sequence_id),
        hops: verdict.hops,
        broken: verdict.broken,
        evidence: verdict.evidence,
    }
}
