//! Lists agents by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::AgentId;
use brokkr_api::agents::Agent;
use brokkr_api::page::Page;

use super::visible::sees_all;
use crate::access::Caller;
use crate::broker::Broker;
use crate::domain::grants::ProjectGrants;
use crate::http::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::agents::{agent_list, agent_list_of};

/// List the agents that are granted to the project, by name; admins see all.
#[utoipa::path(get, path = "/api/v1/agents", tag = "agents", params(Paging),
    responses((status = 200, body = Page<Agent>)))]
pub async fn list_agents(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<Agent>>, ApiError> {
    let limit = paging.limit();
    let after = paging.after.as_deref();
    let agents = match granted(&broker, &caller, after, limit) {
        None => agent_list(&broker.pool, after, limit).await?,
        Some(page) => agent_list_of(&broker.pool, &page).await?,
    };
    let agents = agents.into_iter().map(|agent| broker.presence.shown(agent)).collect();
    Ok(Json(Page::cut(agents, limit, |agent: &Agent| agent.name.to_string())))
}

/// The page of agents that the caller sees, one more than `limit` if there are more; none if it sees all.
fn granted(broker: &Broker, caller: &Caller, after: Option<&str>, limit: usize) -> Option<Vec<AgentId>> {
    let picture = broker.index.picture();
    if sees_all(caller) || *picture.project_grants(caller.project()) == ProjectGrants::Unlimited {
        return None;
    }
    let page = picture.page(&picture.granted(caller.project()), after, limit);
    Some(page.into_iter().map(|agent| agent.id).collect())
}
