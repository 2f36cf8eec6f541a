//! Agents: registration, target state, holds and reports, and how people see and change them.

pub mod holds;
pub mod keys;
pub mod list;
pub mod register;
pub mod reports;
pub mod retirement;
pub mod session;
pub mod target_state;
pub mod targets;
pub mod why;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::agents::{Agent, AgentPatch};
use brokkr_api::ids::Checksum;
use brokkr_api::names::{DEFAULT_PROJECT, check_annotations, check_labels};
use brokkr_api::{AgentId, Labels};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::grants::ProjectGrants;
use crate::error::ApiError;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::Asked;
use crate::http::write::{self, Keep, Write, digest};
use crate::index::{Losses, Snapshot};
use crate::state::Broker;
use crate::store::agents::{AgentRef, agent_fetch, agent_patch_on_conn};
use crate::store::outbox::OutboxNotification;

/// Whether the caller sees every agent of the installation, and what they get from any project.
pub fn sees_all(caller: &Caller) -> bool {
    matches!(caller, Caller::Token(token) if token.role.is_over_installation())
}

/// Whether the caller sees the agent. An agent that is called by itself was let in by the guard.
pub fn sees(snapshot: &Snapshot, caller: &Caller, agent: AgentId) -> bool {
    let Caller::Token(token) = caller else { return true };
    if sees_all(caller) {
        return true;
    }
    let grants = snapshot.project_grants(&token.project);
    *grants == ProjectGrants::Unlimited || snapshot.agent(agent).is_some_and(|agent| grants.cover(agent))
}

/// The agent of this name or id, noted as it is before the change.
pub(super) async fn find(write: &mut Write<'_>, agent: &str) -> Result<Agent, ApiError> {
    let found = agent_fetch(write.conn(), &AgentRef::read(agent)).await?;
    let found = found.ok_or_else(|| ApiError::not_found("agent"))?;
    write.was(&found);
    Ok(found)
}

/// Tells every replica, and answers with the agent as it is after the change.
pub(super) async fn finish(mut write: Write<'_>, agent: &Agent) -> Result<Response, ApiError> {
    write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
    let after = agent_fetch(write.conn(), &AgentRef::Id(agent.id)).await?;
    write.finish(StatusCode::OK, &after.ok_or_else(|| ApiError::not_found("agent"))?).await
}

/// Read an agent.
#[utoipa::path(get, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn get_agent(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(agent): Path<String>,
) -> Result<Json<Agent>, ApiError> {
    let agent = agent_fetch(&broker.pool, &AgentRef::read(&agent)).await?;
    let agent = agent.filter(|agent| sees(&broker.index.snapshot(), &caller, agent.id));
    let agent = agent.ok_or_else(|| ApiError::not_found("agent"))?;
    Ok(Json(broker.presence.shown(agent)))
}

/// Change an agent. What is not given stays. Labels that take stacks away need `expect`.
#[utoipa::path(patch, path = "/api/v1/agents/{agent}", tag = "agents", request_body = AgentPatch,
    params(("agent" = String, Path, description = "Name or id"), Expect), responses((status = 200, body = Agent)))]
pub async fn patch_agent(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    Asked(expect): Asked<Expect>,
    change: Change,
) -> Result<Response, ApiError> {
    let patch: AgentPatch = change.json()?;
    if let Some(labels) = &patch.labels {
        check_labels(labels).map_err(|error| ApiError::unreadable(error.to_string()))?;
    }
    if let Some(annotations) = &patch.annotations {
        check_annotations(annotations).map_err(|error| ApiError::unreadable(error.to_string()))?;
    }
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let (named, missing) = (AgentRef::read(&agent), || ApiError::not_found("agent"));
        let before = agent_fetch(write.conn(), &named).await?.ok_or_else(missing)?;
        let agent = agent_patch_on_conn(write.conn(), &named, &patch).await?.ok_or_else(missing)?;
        write.noting(Some(settings(&before)), Some(settings(&agent)));
        // Counted with the row locked: nobody else changes these labels meanwhile.
        expect.allow(&lost(&broker, agent.id, patch.labels.as_ref()))?;
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
        write.finish(StatusCode::OK, &agent).await
    })
    .await
}

/// The digest of what can be changed. When an agent was seen says nothing about who changed what.
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
