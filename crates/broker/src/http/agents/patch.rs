//! Changes an agent: its status, labels, annotations.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::agents::{Agent, AgentPatch};
use brokkr_api::ids::Checksum;
use brokkr_api::names::{DEFAULT_PROJECT, check_annotations, check_labels};
use brokkr_api::{AgentId, Labels};
use http::StatusCode;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::expect::Expect;
use crate::http::paging::Asked;
use crate::http::write::{Begun, Keep, Write, digest};
use crate::index::Losses;
use crate::store::agents::{AgentRef, agent_fetch, agent_patch_on_conn};
use crate::store::outbox::OutboxNotification;

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
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let (named, missing) = (AgentRef::read(&agent), || ApiError::not_found("agent"));
    let before = agent_fetch(write.conn(), &named).await?.ok_or_else(missing)?;
    let agent = agent_patch_on_conn(write.conn(), &named, &patch).await?.ok_or_else(missing)?;
    write.noting(Some(settings(&before)), Some(settings(&agent)));
    // Counted with the row locked: nobody else changes these labels meanwhile.
    expect.allow(&lost(&broker, agent.id, patch.labels.as_ref()))?;
    write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent.id)).await?;
    write.finish(StatusCode::OK, &agent).await
}

/// The digest of what can be changed. When an agent was seen says nothing about who changed what.
fn settings(agent: &Agent) -> Checksum {
    digest(&(agent.status, &agent.labels, &agent.annotations))
}

fn lost(broker: &Broker, agent: AgentId, labels: Option<&Labels>) -> Losses {
    let snapshot = broker.index.snapshot();
    let lost =
        snapshot.agent(agent).zip(labels).map(|(agent, labels)| snapshot.lost_by_labels(agent, labels.into()));
    lost.unwrap_or_default()
}
