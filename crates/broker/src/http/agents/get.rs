//! One agent, by name or id.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::agents::Agent;

use super::visible::sees;
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::store::agents::{AgentRef, agent_fetch};

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
