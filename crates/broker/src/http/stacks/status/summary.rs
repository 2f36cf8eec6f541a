//! How far a stack is on all agents.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::status::{SequenceCounts, StackSummary};
use http::HeaderMap;

use crate::access::Caller;
use crate::domain::status::by_sequence;
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::headers::position;
use crate::http::stacks::find_stack;
use crate::store::status_counts::status_counts_of_stack;

/// The maximum number of versions in a summary.
const SEQUENCES: usize = 20;

/// Summarize the status of a stack: how many agents it reaches, and their states.
///
/// The states are read from counters, whatever the size of the fleet.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status/summary", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id")),
    responses((status = 200, body = StackSummary)))]
pub async fn stack_summary(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Json<StackSummary>> {
    broker.catch_up(&caller, position(&headers)?).await?;
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let sequences = by_sequence(&status_counts_of_stack(&broker.pool, project, stack.id).await?);
    let (targeted, holding) = {
        let snapshot = broker.index.snapshot();
        let targeted = snapshot.stack(stack.id).map_or(0, |stack| snapshot.reached(stack).len());
        (targeted as u64, snapshot.holders(stack.id).count() as u64)
    };
    let counts = stack.sequence_id.and_then(|newest| sequences.get(&newest)).copied().unwrap_or_default();
    let older = sequences.iter().filter(|(sequence, _)| Some(**sequence) < stack.sequence_id);
    Ok(Json(StackSummary {
        project: stack.project,
        stack_id: stack.id,
        stack_name: stack.name.to_string(),
        sequence_id: stack.sequence_id,
        targeted,
        holding,
        pending: targeted.saturating_sub(counts.present()),
        counts,
        behind: older.map(|(_, counts)| counts.present()).sum(),
        sequences: sequences
            .into_iter()
            .rev()
            .take(SEQUENCES)
            .map(|(sequence_id, counts)| SequenceCounts { sequence_id, counts })
            .collect(),
    }))
}
