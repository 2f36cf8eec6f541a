//! What a rollout has decided, and from what.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::SequenceId;
use brokkr_api::page::Page;
use brokkr_api::rollouts::RolloutDecision;

use super::missing;
use crate::access::Caller;
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::store::rollout_decisions::rollout_decision_list;
use crate::store::rollouts::rollout_fetch;

/// List the decisions of a rollout, newest first.
///
/// Each step is listed: the version is released to more agents, a wave begins, or the state changes, also by a command or a newer
/// version.
#[utoipa::path(get, path = "/api/v1/rollouts/{sequence_id}/decisions", tag = "rollouts",
    params(("sequence_id" = i64, Path, description = "Sequence id"), Paging),
    responses((status = 200, body = Page<RolloutDecision>)))]
pub async fn list_rollout_decisions(
    State(broker): BrokerState,
    caller: Caller,
    Path(sequence_id): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<RolloutDecision>>> {
    let sequence_id: SequenceId = sequence_id.parse().map_err(|_| missing())?;
    let project = caller.project();
    rollout_fetch(&broker.pool, project, sequence_id).await?.ok_or_else(missing)?;
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let found = rollout_decision_list(&broker.pool, project, sequence_id, below, limit).await?;
    Ok(Json(Page::cut(found, limit, |decision| decision.number.to_string())))
}
