//! Views of a fleet: is all well, and where not?
//!
//! They are counted from what this replica has in memory, whatever the size of the fleet; only the groups of errors are read from the
//! database. A view counts the stacks of the caller's project and the agents that they reach, and no others.

pub mod stream;

use axum::Json;
use axum::extract::State;
use brokkr_api::fleet::{FleetMatrix, FleetSummary};
use brokkr_api::names::{BadLabel, check_label_key};
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::headers::position;
use crate::http::paging::{QueryParams, selector};
use crate::index::MatrixRequest;
use crate::store::status_counts::error_group_list;

/// The number of groups of errors in a summary.
const GROUPS: usize = 5;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct MatrixQuery {
    /// The key of the label that makes the columns, such as `region`. Without it, there is one column with all agents.
    pub by: Option<String>,
    /// Only agents with matching labels, such as `env=prod`.
    pub selector: Option<String>,
}

impl MatrixQuery {
    fn request(self, caller: &Caller) -> ApiResult<MatrixRequest> {
        if let Some(key) = &self.by {
            let bad = |error: BadLabel| ApiError::invalid_request(format!("invalid `by`: {error}"));
            check_label_key(key).map_err(bad)?;
        }
        let selector = selector(self.selector.as_deref())?;
        Ok(MatrixRequest { project: caller.project().to_owned(), by: self.by, selector })
    }
}

/// Summarize the fleet: how many agents have what they should have, and what needs attention.
///
/// Counts the agents that the stacks of the project reach, each once: by its worst stack, or as silent.
#[utoipa::path(get, path = "/api/v1/fleet/summary", tag = "fleet", responses((status = 200, body = FleetSummary)))]
pub async fn fleet_summary(
    State(broker): BrokerState,
    caller: Caller,
    headers: HeaderMap,
) -> ApiResult<Json<FleetSummary>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let counts = broker.views.counts(&caller.principal(), caller.project()).await?;
    let groups = error_group_list(&broker.pool, caller.project(), None, None, GROUPS).await?;
    Ok(Json(FleetSummary {
        freshness: counts.freshness,
        stacks: counts.stacks,
        counts: counts.agents,
        needs_attention: groups.into_iter().take(GROUPS).map(|(_, group)| group).collect(),
    }))
}

/// Count the agents of each stack by the values of a label.
///
/// At most 60 rows and 60 columns: stacks and values with fewer agents are added up in the last ones. Stacks that reach none of the
/// agents have no row.
#[utoipa::path(get, path = "/api/v1/fleet/matrix", tag = "fleet", params(MatrixQuery),
    responses((status = 200, body = FleetMatrix)))]
pub async fn fleet_matrix(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<MatrixQuery>,
    headers: HeaderMap,
) -> ApiResult<Json<FleetMatrix>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let matrix = broker.views.matrix(&caller.principal(), query.request(&caller)?).await?;
    Ok(Json(FleetMatrix::clone(&matrix)))
}
