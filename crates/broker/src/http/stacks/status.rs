//! The status of a stack on each agent that it reaches, that holds it, or that reported on it.
//!
//! A page takes bounded work, whatever the size of the fleet.

mod matching;
pub mod summary;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::AgentStatus;
use brokkr_api::page::{Page, Sort};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::status::{StackStatus, State as StackState};
use brokkr_api::why::Presence;
use brokkr_api::{AgentId, Selector, SequenceId, StackId};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::envelope::{DesiredObject, awaited, desired};
use crate::domain::status::{LastReport, state};
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::headers::position;
use crate::http::paging::{QueryParams, filtered_page, limit, selector};
use crate::http::stacks::find_stack;
use crate::index::Snapshot;
use crate::state::Broker;
use crate::store::StoreError;
use crate::store::stack_status::{
    stack_status_by_transition, stack_status_fetch, stack_status_reporters, stack_status_walk,
};
use crate::store::status_counts::status_counts_of_stack;
use matching::matching_page;

/// If more agents than this have reported on a stack, all agents are read in the order of their names,
/// because nearly all are affected. For other stacks, the affected agents are found in the index.
const MANY: u64 = 20_000;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StatusQuery {
    /// Only rows in this state.
    pub state: Option<StackState>,
    /// Only agents with matching labels, such as `env=prod`.
    pub selector: Option<String>,
    /// Only rows whose last report has this reason, such as `ImagePullBackOff`.
    pub error: Option<String>,
    /// Only agents with this presence.
    pub presence: Option<Presence>,
    /// Only agents whose last report is about an older version than the newest one, and does not say that the stack was removed.
    #[serde(default)]
    pub behind: bool,
    #[param(inline)]
    pub sort: Option<Sort>,
    /// Return the total number, too.
    #[serde(default)]
    pub count: bool,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

impl StatusQuery {
    /// Returns whether only the index can find the rows: the database cannot filter, sort and count them in bounded work.
    fn needs_index(&self) -> bool {
        let filters = self.error.is_some() || self.presence.is_some() || self.behind;
        filters || self.sort.is_some_and(|sort| sort != Sort::Name) || self.count
    }
}

/// The names of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackNames<'a> {
    pub project: &'a str,
    pub id: StackId,
    pub name: &'a str,
}

impl<'a> From<&'a Stack> for StackNames<'a> {
    fn from(stack: &'a Stack) -> Self {
        Self { project: &stack.project, id: stack.id, name: stack.name.as_str() }
    }
}

/// What the index knows about the stack on one agent.
#[derive(Clone, Debug)]
pub struct StackOnAgent {
    agent: AgentId,
    active: bool,
    wanted: Option<DesiredObject>,
    /// The version that is wanted next, if none is.
    awaited: Option<SequenceId>,
    holds: bool,
}

impl StackOnAgent {
    pub fn of(snapshot: &Snapshot, stack: StackId, agent: AgentId) -> Self {
        let facts = snapshot.agent(agent);
        let on = facts.zip(snapshot.stack(stack));
        Self {
            agent,
            active: facts.is_none_or(|facts| facts.status == AgentStatus::Active),
            wanted: on.and_then(|(facts, stack)| desired(facts, stack)),
            awaited: on.and_then(|(facts, stack)| awaited(facts, stack)),
            holds: facts.is_some_and(|facts| facts.holds(stack)),
        }
    }

    pub fn holds(&self) -> bool {
        self.holds
    }

    pub fn is_affected(&self) -> bool {
        self.wanted.is_some() || self.awaited.is_some() || self.holds
    }
}

/// List the status of a stack on each agent, by agent name.
///
/// A filtered page may be short or empty although more follow: read on while `next` is set. `error`, `presence`, `behind`, `sort` and
/// `count` are answered from what the replica has in memory, which is a moment behind the database; just after its start, it asks to
/// try again.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"), StatusQuery),
    responses((status = 200, body = Page<StackStatus>)))]
pub async fn stack_status(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(query): QueryParams<StatusQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<Page<StackStatus>>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let selector = selector(query.selector.as_deref())?;
    let stack = find_stack(&broker, caller.project(), &stack).await?;
    if query.needs_index() {
        let principal = caller.principal();
        return matching_page(&broker, &principal, &stack, &query, selector.as_ref()).await.map(Json);
    }
    let source = RowSource::of(&broker, &stack, query.state).await?;
    let unfiltered = query.state.is_none() && selector.is_none();
    let to_item = |row: StatusRow| {
        let snapshot = broker.index.snapshot();
        let known = StackOnAgent::of(&snapshot, stack.id, row.agent);
        let selected =
            |selector: &Selector| snapshot.agent(row.agent).is_some_and(|agent| agent.matches(selector));
        let affected = row.report.is_some() || known.is_affected();
        let status = (affected && selector.as_ref().is_none_or(selected))
            .then(|| status((&stack).into(), row.name, known, row.report))?;
        query.state.is_none_or(|state| status.state == state).then_some(status)
    };
    let read = |after: Option<String>, chunk| {
        let (broker, stack, source) = (&broker, &stack, &source);
        async move { source.rows(broker, stack, after.as_deref(), chunk).await }
    };
    let page = filtered_page(
        query.after.clone(),
        limit(query.limit),
        unfiltered,
        read,
        |row| row.name.clone(),
        to_item,
    );
    Ok(Json(page.await?))
}

/// An agent that may belong on the page, with its last report.
#[derive(Debug)]
pub struct StatusRow {
    pub name: String,
    pub agent: AgentId,
    pub report: Option<LastReport>,
}

/// Where rows come from, by agent name.
#[derive(Clone, Debug)]
enum RowSource {
    /// Agents with this last transition: no others can be in the requested state.
    Reported(Transition),
    /// All agents, because nearly all are affected.
    AllAgents,
    /// Agents that the index names, and agents that reported.
    Affected,
}

impl RowSource {
    async fn of(broker: &Broker, stack: &Stack, state: Option<StackState>) -> Result<Self, StoreError> {
        let reported = match state {
            Some(StackState::Applied) => Some(Transition::Applied),
            Some(StackState::Healthy) => Some(Transition::Healthy),
            Some(StackState::Degraded) => Some(Transition::Degraded),
            Some(StackState::Failed) => Some(Transition::Failed),
            Some(StackState::Blocked) => Some(Transition::Blocked),
            Some(StackState::Pending | StackState::Removing | StackState::Removed | StackState::Unknown)
            | None => None,
        };
        if let Some(transition) = reported {
            return Ok(Self::Reported(transition));
        }
        let counts = status_counts_of_stack(&broker.pool, &stack.project, stack.id).await?;
        let many = counts.iter().map(|(_, _, agents)| agents).sum::<u64>() > MANY;
        Ok(if many { Self::AllAgents } else { Self::Affected })
    }

    async fn rows(
        &self,
        broker: &Broker,
        stack: &Stack,
        after: Option<&str>,
        chunk: usize,
    ) -> Result<Vec<StatusRow>, StoreError> {
        let (pool, project, id) = (&broker.pool, stack.project.as_str(), stack.id);
        let rows = match self {
            Self::Reported(transition) => {
                stack_status_by_transition(pool, project, id, transition, after, chunk).await?
            }
            Self::AllAgents => stack_status_walk(pool, project, id, after, chunk).await?,
            Self::Affected => {
                let mut names = affected(broker, id, after, chunk);
                names.extend(stack_status_reporters(pool, project, id, after, chunk).await?);
                let names: Vec<(String, AgentId)> = names.into_iter().take(chunk).collect();
                let agents: Vec<AgentId> = names.iter().map(|(_, agent)| *agent).collect();
                let mut reports = stack_status_fetch(pool, project, id, &agents).await?;
                return Ok(names
                    .into_iter()
                    .map(|(name, agent)| StatusRow { name, agent, report: reports.remove(&agent) })
                    .collect());
            }
        };
        Ok(rows.into_iter().map(|(name, agent, report)| StatusRow { name, agent, report }).collect())
    }
}

/// Returns the first agents, by name after the given one, that the stack reaches or that hold it.
fn affected(broker: &Broker, stack: StackId, after: Option<&str>, most: usize) -> BTreeMap<String, AgentId> {
    let snapshot = broker.index.snapshot();
    let Some(stack) = snapshot.stack(stack) else { return BTreeMap::new() };
    let mut agents = snapshot.reached(stack);
    agents.extend(snapshot.holders(stack.id));
    agents.retain(|agent| after.is_none_or(|after| agent.name.as_str() > after));
    // Each agent may occur twice. A stack may reach the whole fleet before any agent reported.
    let enough = 2 * most;
    if agents.len() > enough {
        agents.select_nth_unstable_by(enough, |one, other| one.name.cmp(&other.name));
        agents.truncate(enough);
    }
    agents.into_iter().map(|agent| (agent.name.clone(), agent.id)).collect()
}

/// Makes one row of the list.
pub fn status(
    stack: StackNames<'_>,
    agent_name: String,
    known: StackOnAgent,
    report: Option<LastReport>,
) -> StackStatus {
    let wanted = known.wanted.as_ref().map(|wanted| (wanted.sequence_id(), wanted.removal));
    let wanted = wanted.or(known.awaited.map(|awaited| (awaited, None)));
    let reported = report.as_ref().map(|report| (report.sequence_id, &report.transition));
    let state = state(wanted, reported);
    let mut status = StackStatus {
        project: stack.project.to_owned(),
        stack_id: stack.id,
        stack_name: stack.name.to_owned(),
        agent_id: known.agent,
        agent_name,
        wanted_sequence_id: wanted.map(|(sequence, _)| sequence),
        sequence_id: reported.map(|(sequence, _)| sequence),
        state,
        ready: 0,
        total: 0,
        reason: Reason::None,
        message: Message::default(),
        objects: Vec::new(),
        conditions: Vec::new(),
        hops: Hops::default(),
    };
    // A report about an older object says nothing about the desired one.
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
        status.reason = Reason::AgentInactive;
        status.message = status.reason.message();
    }
    status
}
