//! What every change of one agent begins and ends with: which it is and how it was, and how it is now.

use axum::response::Response;
use brokkr_api::agents::Agent;
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use crate::error::ApiError;
use crate::http::write::Write;
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::outbox::OutboxNotification;

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
