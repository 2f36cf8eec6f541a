//! Finds agents, stacks and versions in the index.

use axum::Json;
use axum::extract::State;
use brokkr_api::fleet::{SEARCH_RESULTS, SearchResults};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::visible_agents;
use crate::http::headers::position;
use crate::http::paging::QueryParams;

/// Names and checksums are shorter.
const LONGEST: usize = 64;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// A part of a name, an id, or at least the first four digits of a checksum.
    q: String,
    /// Maximum number of results of each kind; at most 20.
    limit: Option<u32>,
}

/// Find agents and stacks by a part of their names or by id, and versions by checksum.
///
/// Finds stacks of the project, and the agents that the caller may see. Of the versions, it finds those that agents may have now.
#[utoipa::path(get, path = "/api/v1/search", tag = "fleet", params(SearchQuery),
    responses((status = 200, body = SearchResults)))]
pub async fn search(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<SearchQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<SearchResults>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let text = query.q.trim().to_ascii_lowercase();
    if text.is_empty() || text.len() > LONGEST {
        return Err(ApiError::invalid_request(format!("`q` must have 1 to {LONGEST} characters")));
    }
    let limit = query.limit.map_or(SEARCH_RESULTS, |limit| (limit as usize).clamp(1, SEARCH_RESULTS));
    let snapshot = broker.index.snapshot();
    let agents = visible_agents(&snapshot, &caller);
    Ok(Json(snapshot.search(&text, caller.project(), &agents, limit)))
}
