//! Lists agents: those that fit, in the order that is asked for, page by page, and how many they are.
//!
//! Names, labels and status are asked of the index, whatever the size of the fleet. Who is there is not in it, because
//! that changes all the time: the database tells it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::agents::{Agent, AgentStatus};
use brokkr_api::page::{Page, Sort};
use brokkr_api::why::Presence;
use brokkr_api::{AgentId, Selector};
use http::HeaderMap;
use roaring::RoaringBitmap;
use serde::Deserialize;
use utoipa::IntoParams;

use super::sees_all;
use crate::access::Caller;
use crate::error::ApiError;
use crate::http::headers::position;
use crate::http::paging::{Asked, limit, selector, walk};
use crate::index::{Picture, Place};
use crate::state::Broker;
use crate::store::agents::{agent_ids_present, agent_list_of, agent_list_present};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AgentQuery {
    /// Only names with this in them.
    pub name: Option<String>,
    /// Only agents whose labels match, such as `env=prod`.
    pub selector: Option<String>,
    pub status: Option<AgentStatus>,
    /// Only those that are there, late, silent, or were never seen.
    pub presence: Option<Presence>,
    #[param(inline)]
    pub sort: Option<Sort>,
    /// Tell how many there are in all, too.
    #[serde(default)]
    pub count: bool,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// List the agents that are granted to the project; admins see all. A page that is filtered by presence may be short, or
/// empty, and still have more behind it: `next` tells.
#[utoipa::path(get, path = "/api/v1/agents", tag = "agents", params(AgentQuery),
    responses((status = 200, body = Page<Agent>)))]
pub async fn list_agents(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<AgentQuery>,
    headers: HeaderMap,
) -> Result<Json<Page<Agent>>, ApiError> {
    broker.catch_up(position(&headers)?).await?;
    let (sort, limit) = (query.sort.unwrap_or_default(), limit(query.limit));
    let after = query.after.as_deref().map(|text| Place::read(sort, text));
    let after =
        after.map(|place| place.ok_or_else(|| ApiError::unreadable("cannot read `after`"))).transpose()?;
    let fitting =
        fitting(&broker.index.picture(), &caller, &query, selector(query.selector.as_deref())?.as_ref());
    let cursor =
        |agent: &Agent| if sort.is_by_name() { agent.name.to_string() } else { agent.id.to_string() };
    let Some(presence) = query.presence else {
        let ids = page(&broker.index.picture(), &fitting, sort, after.as_ref(), limit);
        let agents = agent_list_of(&broker.pool, &ids).await?;
        let agents = agents.into_iter().map(|agent| broker.presence.shown(agent)).collect();
        let page = Page::cut(agents, limit, cursor);
        return Ok(Json(Page { total: query.count.then(|| fitting.len()), ..page }));
    };
    let pool = &broker.pool;
    let read = |after: Option<String>, chunk| async move {
        agent_list_present(pool, presence, sort, after.as_deref(), chunk).await
    };
    let is_fitting = |id| broker.index.picture().contains(&fitting, id);
    let fit = |agent: Agent| {
        let agent = broker.presence.shown(agent);
        (agent.presence == presence && is_fitting(agent.id)).then_some(agent)
    };
    let mut page = walk(query.after.clone(), limit, false, read, cursor, fit).await?;
    if query.count {
        let ids = agent_ids_present(pool, presence).await?;
        page.total = Some(ids.into_iter().filter(|id| is_fitting(*id)).count() as u64);
    }
    Ok(Json(page))
}

/// Those that the caller sees and that fit, whether they are there or not.
fn fitting(
    picture: &Picture,
    caller: &Caller,
    query: &AgentQuery,
    selector: Option<&Selector>,
) -> RoaringBitmap {
    let mut fitting = if sees_all(caller) { picture.everyone() } else { picture.granted(caller.project()) };
    if let Some(selector) = selector {
        fitting &= picture.select(selector);
    }
    if let Some(status) = query.status {
        fitting &= picture.with_status(status);
    }
    if let Some(part) = &query.name {
        fitting &= picture.named_like(part);
    }
    fitting
}

fn page(
    picture: &Picture,
    fitting: &RoaringBitmap,
    sort: Sort,
    after: Option<&Place>,
    limit: usize,
) -> Vec<AgentId> {
    picture.page(fitting, sort, after, limit).into_iter().map(|agent| agent.id).collect()
}
