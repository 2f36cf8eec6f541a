//! The labels of agents, counted in the index.

use axum::Json;
use axum::extract::State;
use brokkr_api::fleet::{LabelKey, TOP_VALUES};
use brokkr_api::page::{LARGEST_PAGE, Page};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::agents::visible_agents;
use crate::http::headers::position;
use crate::http::paging::{QueryParams, limit};
use crate::index::{LabelFilter, Snapshot};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LabelQuery {
    /// Only this key, with up to 500 values instead of 20.
    pub key: Option<String>,
    /// Only values with this text.
    pub value: Option<String>,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of keys; at most 500.
    pub limit: Option<u32>,
}

/// List the keys of labels, by key, with their most frequent values.
///
/// A token of a project counts the agents granted to the project; admins count all.
#[utoipa::path(get, path = "/api/v1/labels", tag = "fleet", params(LabelQuery),
    responses((status = 200, body = Page<LabelKey>)))]
pub async fn list_labels(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<LabelQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<Page<LabelKey>>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let limit = limit(query.limit);
    let values = if query.key.is_some() { LARGEST_PAGE as usize } else { TOP_VALUES };
    let LabelQuery { key, value, after, .. } = query;
    let filter = LabelFilter { key, value, after, limit, values };
    let principal = caller.principal();
    let visible = move |snapshot: &Snapshot| visible_agents(snapshot, &caller);
    let keys = broker.views.compute(&principal, move |index| index.label_keys(visible, &filter)).await?;
    Ok(Json(Page::cut(keys, limit, |key: &LabelKey| key.key.clone())))
}
