//! The state of a stack on an agent, each time something is reported about it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::response::sse::Event as Message;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use http::HeaderMap;

use super::follow::{Filter, Follow, answer};
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::stacks::status::{Known, status};
use crate::store::StoreError;
use crate::store::stack_status::stack_status_fetch;
use crate::store::stacks::{StackRef, stack_fetch};
use crate::state::streams::StreamedEvent;

/// Follow the status of a stack: server-sent events named `status`, each the JSON of its state on one agent, as of now.
/// Resumable as the stream of events is.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status/stream", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"),
           ("last-event-id" = Option<String>, Header, description = "Go on behind this one")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_status(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(stack): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(&stack)).await?;
    let stack = Arc::new(stack.ok_or_else(|| ApiError::not_found("stack"))?);
    let filter = Filter { stack: Some(stack.id), agent: None };
    let follow = Follow::begin(broker, caller, headers, origin, filter).await?;
    Ok(answer(follow, move |broker, told| {
        let stack = Arc::clone(&stack);
        async move {
            // Cut off, a reader comes back and misses nothing; left out, a state would be.
            let now = current(&broker, &stack, &told).await.map_err(axum::Error::new);
            Some(now.and_then(|now| Message::default().event("status").json_data(now)))
        }
    }))
}

/// How it is now: the event only says that something was reported.
async fn current(broker: &Broker, stack: &Stack, told: &StreamedEvent) -> Result<StackStatus, StoreError> {
    let agent = told.event.agent_id;
    let fetch = async || {
        let mut reports = stack_status_fetch(&broker.pool, &stack.project, stack.id, &[agent]).await?;
        Ok::<_, StoreError>(reports.remove(&agent))
    };
    let report = told.report.get_or_try_init(fetch).await?.clone();
    let known = Known::of(&broker.index.snapshot(), stack.id, agent);
    Ok(status(stack, told.event.agent_name.clone(), known, report))
}
