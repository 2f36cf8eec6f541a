//! Agents: registration, target state, holds and reports, and how people see and change them.

pub mod holds;
pub mod keys;
pub mod list;
pub mod register;
pub mod reports;
pub mod retirement;
pub mod session;
pub mod stacks;
pub mod target_state;
pub mod targets;
pub mod upgrade;
pub mod why;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::{Agent, AgentPatch};
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::{AgentId, Labels};
use http::StatusCode;
use roaring::RoaringBitmap;

use crate::access::Caller;
use crate::domain::facts::AgentFacts;
use crate::domain::grants::ProjectGrants;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::{Change, check_metadata};
use crate::http::expect::Expect;
use crate::http::paging::QueryParams;
use crate::http::write::{self, ResultStorage, Write, digest};
use crate::index::{Losses, Snapshot};
use crate::state::Broker;
use crate::store::agents::{AgentRef, agent_fetch, agent_patch_on_conn};
use crate::store::outbox::OutboxNotification;

/// Returns whether the caller sees every agent of the installation and its stacks in all projects.
pub fn can_see_all(caller: &Caller) -> bool {
    matches!(caller, Caller::Token(token) if token.role.is_over_installation())
}

/// Returns whether the caller sees the agent: tokens of a project see the agents granted to it. Agents as
/// callers were checked by the guard.
pub fn can_see(snapshot: &Snapshot, caller: &Caller, agent: AgentId) -> bool {
    let Caller::Token(token) = caller else { return true };
    if can_see_all(caller) {
        return true;
    }
    let grants = snapshot.project_grants(&token.project);
    *grants == ProjectGrants::Unlimited || snapshot.agent(agent).is_some_and(|agent| grants.cover(agent))
}

/// Returns the agents that the caller sees.
pub fn visible_agents(snapshot: &Snapshot, caller: &Caller) -> RoaringBitmap {
    if can_see_all(caller) { snapshot.everyone() } else { snapshot.granted(caller.project()) }
}

/// Fetches the agent of this name or id. An agent that the caller does not see is reported like one that does not exist.
pub async fn find_agent(broker: &Broker, caller: &Caller, agent: &str) -> ApiResult<Agent> {
    let found = agent_fetch(&broker.pool, &AgentRef::read(agent)).await?;
    let found = found.filter(|agent| can_see(&broker.index.snapshot(), caller, agent.id));
    found.ok_or_else(|| ApiError::not_found("agent"))
}

/// Returns the id of the agent of this name or id, if one is named.
pub async fn find_agent_id(
    broker: &Broker,
    caller: &Caller,
    named: Option<&str>,
) -> ApiResult<Option<AgentId>> {
    match named {
        None => Ok(None),
        Some(named) => Ok(Some(find_agent(broker, caller, named).await?.id)),
    }
}

/// Looks up the agent of this name or id in the index.
pub fn agent_facts<'a>(snapshot: &'a Snapshot, agent: &str) -> ApiResult<&'a AgentFacts> {
    let found = match AgentRef::read(agent) {
        AgentRef::Id(id) => snapshot.agent(id),
        AgentRef::Name(name) => snapshot.agent_named(&name),
    };
    found.ok_or_else(|| ApiError::not_found("agent"))
}

/// Fetches the agent of this name or id and records it for the audit log as it is before the change.
pub(super) async fn find(write: &mut Write, agent: &str) -> ApiResult<Agent> {
    let found = agent_fetch(write.conn(), &AgentRef::read(agent)).await?;
    let found = found.ok_or_else(|| ApiError::not_found("agent"))?;
    write.audit_before(&found);
    Ok(found)
}

/// Notifies every replica and responds with the agent as it is after the change.
pub(super) async fn finish(mut write: Write, agent: &Agent) -> ApiResult {
    write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
    let after = agent_fetch(write.conn(), &AgentRef::Id(agent.id)).await?;
    write.finish(StatusCode::OK, &after.ok_or_else(|| ApiError::not_found("agent"))?).await
}

/// Get an agent.
#[utoipa::path(get, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn get_agent(
    State(broker): BrokerState,
    caller: Caller,
    Path(agent): Path<String>,
) -> ApiResult<Json<Agent>> {
    let agent = find_agent(&broker, &caller, &agent).await?;
    Ok(Json(broker.presence.shown(agent)))
}

/// Change the status, labels or annotations of an agent.
///
/// Fields that are not given stay as they are. A label change that removes stacks from the agent needs `expect`.
#[utoipa::path(patch, path = "/api/v1/agents/{agent}", tag = "agents", request_body = AgentPatch,
    params(("agent" = String, Path, description = "Name or id"), Expect), responses((status = 200, body = Agent)))]
pub async fn patch_agent(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    QueryParams(expect): QueryParams<Expect>,
    change: Change,
) -> ApiResult {
    let patch: AgentPatch = change.json()?;
    check_metadata(patch.labels.as_ref(), patch.annotations.as_ref())?;
    if patch.labels.is_some() {
        broker.index_is_current().await?;
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let (named, missing) = (AgentRef::read(&agent), || ApiError::not_found("agent"));
        let before = agent_fetch(write.conn(), &named).await?.ok_or_else(missing)?;
        let agent = agent_patch_on_conn(write.conn(), &named, &patch).await?.ok_or_else(missing)?;
        write.audit_digests(Some(settings(&before)), Some(settings(&agent)));
        // Counted while the row is locked: no other request changes these labels meanwhile.
        expect.check(&lost(&broker, agent.id, patch.labels.as_ref()))?;
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
        write.finish(StatusCode::OK, &agent).await
    })
    .await
}

/// Returns the digest of the settings. It leaves out fields that change by themselves, such as when the agent was
/// last seen.
fn settings(agent: &Agent) -> Checksum {
    digest(&(agent.status, &agent.labels, &agent.annotations))
}

fn lost(broker: &Broker, agent: AgentId, labels: Option<&Labels>) -> Losses {
    let snapshot = broker.index.snapshot();
    let lost = snapshot
        .agent(agent)
        .zip(labels)
        .map(|(agent, labels)| snapshot.lost_by_labels(agent, labels.into()));
    lost.unwrap_or_default()
}
