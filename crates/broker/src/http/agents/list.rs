//! Lists agents: filtered, sorted, paged and counted.
//!
//! Names, labels and status come from the index, whatever the size of the fleet. Presence changes all the time and is
//! read from the database.

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

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::visible_agents;
use crate::http::headers::position;
use crate::http::paging::{QueryParams, filtered_page, limit, selector};
use crate::index::{AgentCursor, Snapshot};
use crate::store::agents::{agent_ids_present, agent_list_of, agent_list_present};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AgentQuery {
    /// Only agents with this text in their name.
    pub name: Option<String>,
    /// Only agents with matching labels, such as `env=prod`.
    pub selector: Option<String>,
    pub status: Option<AgentStatus>,
    /// Only agents with this presence.
    pub presence: Option<Presence>,
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

/// List agents.
///
/// A token of a project sees the agents granted to the project; admins see all. A page filtered by presence may be
/// short or empty although more follow: read on while `next` is set.
#[utoipa::path(get, path = "/api/v1/agents", tag = "agents", params(AgentQuery),
    responses((status = 200, body = Page<Agent>)))]
pub async fn list_agents(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<AgentQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<Page<Agent>>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let (sort, limit) = (query.sort.unwrap_or_default(), limit(query.limit));
    let after = query.after.as_deref().map(|text| AgentCursor::read(sort, text));
    let after =
        after.map(|after| after.ok_or_else(|| ApiError::invalid_request("invalid `after`"))).transpose()?;
    let selector = selector(query.selector.as_deref())?;
    let cursor =
        |agent: &Agent| if sort.is_by_name() { agent.name.to_string() } else { agent.id.to_string() };
    let Some(presence) = query.presence else {
        let (ids, total) = {
            // One snapshot: a later one may use the slot of a deleted agent for another one.
            let snapshot = broker.index.snapshot();
            let matching = matching(&snapshot, &caller, &query, selector.as_ref());
            (page(&snapshot, &matching, sort, after.as_ref(), limit), matching.len())
        };
        let agents = agent_list_of(&broker.pool, &ids).await?;
        let agents = agents.into_iter().map(|agent| broker.presence.shown(agent)).collect();
        let page = Page::cut(agents, limit, cursor);
        return Ok(Json(Page { total: query.count.then_some(total), ..page }));
    };
    let pool = &broker.pool;
    let read = |after: Option<String>, chunk| async move {
        agent_list_present(pool, presence, sort, after.as_deref(), chunk).await
    };
    let matching = {
        let snapshot = broker.index.snapshot();
        snapshot.ids(&matching(&snapshot, &caller, &query, selector.as_ref()))
    };
    let is_match = |id| matching.binary_search(&id).is_ok();
    let to_item = |agent: Agent| {
        let agent = broker.presence.shown(agent);
        (agent.presence == presence && is_match(agent.id)).then_some(agent)
    };
    let mut page = filtered_page(query.after.clone(), limit, false, read, cursor, to_item).await?;
    if query.count {
        let ids = agent_ids_present(pool, presence).await?;
        page.total = Some(ids.into_iter().filter(|id| is_match(*id)).count() as u64);
    }
    Ok(Json(page))
}

/// Returns the agents that the caller sees and that match, whatever their presence.
fn matching(
    snapshot: &Snapshot,
    caller: &Caller,
    query: &AgentQuery,
    selector: Option<&Selector>,
) -> RoaringBitmap {
    let mut matching = visible_agents(snapshot, caller);
    if let Some(selector) = selector {
        matching &= snapshot.select(selector);
    }
    if let Some(status) = query.status {
        matching &= snapshot.with_status(status);
    }
    if let Some(part) = &query.name {
        matching &= snapshot.named_like(part);
    }
    matching
}

fn page(
    snapshot: &Snapshot,
    matching: &RoaringBitmap,
    sort: Sort,
    after: Option<&AgentCursor>,
    limit: usize,
) -> Vec<AgentId> {
    snapshot.page(matching, sort, after, limit).into_iter().map(|agent| agent.id).collect()
}
