//! Lists agents by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::agents::Agent;
use brokkr_api::page::Page;

use crate::broker::Broker;
use crate::http::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::agents::agent_list;

/// List the agents, by name.
#[utoipa::path(get, path = "/api/v1/agents", tag = "agents", params(Paging),
    responses((status = 200, body = Page<Agent>)))]
pub async fn list_agents(
    State(broker): State<Arc<Broker>>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<Agent>>, ApiError> {
    let limit = paging.limit();
    let agents = agent_list(&broker.pool, paging.after.as_deref(), limit).await?;
    let agents = agents.into_iter().map(|agent| broker.presence.shown(agent)).collect();
    Ok(Json(Page::cut(agents, limit, |agent: &Agent| agent.name.to_string())))
}
