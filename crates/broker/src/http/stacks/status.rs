//! The status of a stack on each agent that it reaches, that holds it, or that reported on it, and its summary.
//!
//! A page takes bounded work, whatever the size of the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::AgentStatus;
use brokkr_api::page::Page;
use brokkr_api::report::{Hops, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::status::{SequenceCounts, StackStatus, StackSummary, State as StackState};
use brokkr_api::{AgentId, Selector, StackId};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::envelope::{Wanted, wanted};
use crate::domain::status::{LastReport, by_sequence, state};
use crate::error::ApiError;
use crate::http::headers::position;
use crate::http::paging::{Asked, limit, selector, walk};
use crate::index::Picture;
use crate::state::Broker;
use crate::store::StoreError;
use crate::store::stack_status::{
    stack_status_by_transition, stack_status_fetch, stack_status_reporters, stack_status_walk,
};
use crate::store::stacks::{StackRef, stack_fetch};
use crate::store::status_counts::status_counts_of_stack;

/// A stack that more agents have reported on is read in the order of all agents' names: nearly everybody is concerned.
/// For the others, those concerned are found in the index.
const MANY: u64 = 20_000;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StatusQuery {
    /// Only in this state.
    pub state: Option<StackState>,
    /// Only agents whose labels match, such as `env=prod`.
    pub selector: Option<String>,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// What the index knows about the stack on one agent.
#[derive(Clone, Debug)]
pub struct Known {
    agent: AgentId,
    active: bool,
    wanted: Option<Wanted>,
    holds: bool,
}

impl Known {
    pub fn of(picture: &Picture, stack: StackId, agent: AgentId) -> Self {
        let facts = picture.agent(agent);
        Self {
            agent,
            active: facts.is_none_or(|facts| facts.status == AgentStatus::Active),
            wanted: facts.zip(picture.stack(stack)).and_then(|(facts, stack)| wanted(facts, stack)),
            holds: facts.is_some_and(|facts| facts.holds(stack)),
        }
    }

    fn is_concerned(&self) -> bool {
        self.wanted.is_some() || self.holds
    }
}

/// The state of a stack on each agent, by the agent's name. A filtered page may be short, or empty, and still have more
/// behind it: `next` tells.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), StatusQuery),
    responses((status = 200, body = Page<StackStatus>)))]
pub async fn stack_status(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Asked(query): Asked<StatusQuery>,
    headers: HeaderMap,
) -> Result<Json<Page<StackStatus>>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let selector = selector(query.selector.as_deref())?;
    let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let source = Source::of(&broker, &stack, query.state).await?;
    let everybody_fits = query.state.is_none() && selector.is_none();
    let fit = |line: Line| {
        let picture = broker.index.picture();
        let known = Known::of(&picture, stack.id, line.agent);
        let selected =
            |selector: &Selector| picture.agent(line.agent).is_some_and(|agent| agent.matches(selector));
        let concerned = line.report.is_some() || known.is_concerned();
        let status = (concerned && selector.as_ref().is_none_or(selected))
            .then(|| status(&stack, line.name, known, line.report))?;
        query.state.is_none_or(|state| status.state == state).then_some(status)
    };
    let read = |after: Option<String>, chunk| {
        let (broker, stack) = (&broker, &stack);
        async move { source.lines(broker, stack, after.as_deref(), chunk).await }
    };
    let page =
        walk(query.after.clone(), limit(query.limit), everybody_fits, read, |line| line.name.clone(), fit);
    Ok(Json(page.await?))
}

/// An agent that may belong on the page, with its last word.
#[derive(Debug)]
pub struct Line {
    pub name: String,
    pub agent: AgentId,
    pub report: Option<LastReport>,
}

/// Where lines come from, each in the order of names.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Those whose last word was this: nobody else can be in the state that is asked for.
    Reported(Transition),
    /// All agents: nearly everybody is concerned.
    Everybody,
    /// Whom the index names, and who reported.
    Concerned,
}

impl Source {
    async fn of(broker: &Broker, stack: &Stack, state: Option<StackState>) -> Result<Self, StoreError> {
        let reported = match state {
            Some(StackState::Applied) => Some(Transition::Applied),
            Some(StackState::Healthy) => Some(Transition::Healthy),
            Some(StackState::Degraded) => Some(Transition::Degraded),
            Some(StackState::Failed) => Some(Transition::Failed),
            Some(StackState::Blocked) => Some(Transition::Blocked),
            Some(StackState::Pending | StackState::Removing | StackState::Removed) | None => None,
        };
        if let Some(transition) = reported {
            return Ok(Self::Reported(transition));
        }
        let counts = status_counts_of_stack(&broker.pool, &stack.project, stack.id).await?;
        let many = counts.iter().map(|(_, _, agents)| agents).sum::<u64>() > MANY;
        Ok(if many { Self::Everybody } else { Self::Concerned })
    }

    async fn lines(
        self,
        broker: &Broker,
        stack: &Stack,
        after: Option<&str>,
        chunk: usize,
    ) -> Result<Vec<Line>, StoreError> {
        let (pool, project, id) = (&broker.pool, stack.project.as_str(), stack.id);
        let lines = match self {
            Self::Reported(transition) => {
                stack_status_by_transition(pool, project, id, transition, after, chunk).await?
            }
            Self::Everybody => stack_status_walk(pool, project, id, after, chunk).await?,
            Self::Concerned => {
                let mut names = concerned(broker, id, after, chunk);
                names.extend(stack_status_reporters(pool, project, id, after, chunk).await?);
                let names: Vec<(String, AgentId)> = names.into_iter().take(chunk).collect();
                let agents: Vec<AgentId> = names.iter().map(|(_, agent)| *agent).collect();
                let mut reports = stack_status_fetch(pool, project, id, &agents).await?;
                return Ok(names
                    .into_iter()
                    .map(|(name, agent)| Line { name, agent, report: reports.remove(&agent) })
                    .collect());
            }
        };
        Ok(lines.into_iter().map(|(name, agent, report)| Line { name, agent, report }).collect())
    }
}

/// The first agents, by name after the given one, that the stack reaches or that hold it.
fn concerned(broker: &Broker, stack: StackId, after: Option<&str>, most: usize) -> BTreeMap<String, AgentId> {
    let picture = broker.index.picture();
    let Some(stack) = picture.stack(stack) else { return BTreeMap::new() };
    let mut agents = picture.reached(stack);
    agents.extend(picture.holders(stack.id));
    agents.retain(|agent| after.is_none_or(|after| agent.name.as_str() > after));
    // Each may be there twice. A stack may reach the whole fleet before anybody reported.
    let enough = 2 * most;
    if agents.len() > enough {
        agents.select_nth_unstable_by(enough, |one, other| one.name.cmp(&other.name));
        agents.truncate(enough);
    }
    agents.into_iter().map(|agent| (agent.name.clone(), agent.id)).collect()
}

/// One line of the list.
pub fn status(stack: &Stack, agent_name: String, known: Known, report: Option<LastReport>) -> StackStatus {
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

/// Older objects are rarely of interest, and a page is never unbounded.
const SEQUENCES: usize = 20;

/// How many agents the stack reaches, and how far they are. Constant work, whatever the size of the fleet.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status/summary", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 200, body = StackSummary)))]
pub async fn stack_summary(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    headers: HeaderMap,
) -> Result<Json<StackSummary>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let project = caller.project();
    let stack = stack_fetch(&broker.pool, project, &StackRef::read(&stack)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    let sequences = by_sequence(&status_counts_of_stack(&broker.pool, project, stack.id).await?);
    let (targeted, holding) = {
        let picture = broker.index.picture();
        let targeted = picture.stack(stack.id).map_or(0, |stack| picture.reached(stack).len());
        (targeted as u64, picture.holders(stack.id).count() as u64)
    };
    let counts = stack.sequence_id.and_then(|newest| sequences.get(&newest)).copied().unwrap_or_default();
    let older = sequences.iter().filter(|(sequence, _)| Some(**sequence) < stack.sequence_id);
    Ok(Json(StackSummary {
        project: stack.project,
        stack_id: stack.id,
        stack_name: stack.name.to_string(),
        sequence_id: stack.sequence_id,
        targeted,
        holding,
        pending: targeted.saturating_sub(counts.present()),
        counts,
        behind: older.map(|(_, counts)| counts.present()).sum(),
        sequences: sequences
            .into_iter()
            .rev()
            .take(SEQUENCES)
            .map(|(sequence_id, counts)| SequenceCounts { sequence_id, counts })
            .collect(),
    }))
}
