//! Watch streams (server-sent events), resumable with `Last-Event-ID`.

pub mod permission;
pub mod reader;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::response::sse::Event as Message;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::agents::find_agent_id;
use crate::http::paging::QueryParams;
use crate::http::stacks::find_stack;
use crate::http::stacks::status::{StackOnAgent, status};
use crate::http::streams::reader::{StreamFilter, StreamReader, respond};
use crate::state::Broker;
use crate::state::streams::StreamedEvent;
use crate::store::StoreError;
use crate::store::stack_status::stack_status_fetch;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// Only events of this stack, by name or id.
    pub stack: Option<String>,
    /// Only events of this agent, by name or id.
    pub agent: Option<String>,
}

/// Stream events as they happen.
///
/// Server-sent events named `event`, each with an event as JSON. With `Last-Event-ID`, the stream continues after
/// that event without a gap; otherwise it begins now. A message named `reset` says that the id is from before a
/// restore.
#[utoipa::path(get, path = "/api/v1/events/stream", tag = "events",
    params(StreamQuery, ("last-event-id" = Option<String>, Header, description = "Continue after this event")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_events(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<StreamQuery>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> ApiResult<impl IntoResponse> {
    let mut filter = StreamFilter::default();
    if let Some(named) = &query.stack {
        filter.stack = Some(find_stack(&broker, caller.project(), named).await?.id);
    }
    filter.agent = find_agent_id(&broker, &caller, query.agent.as_deref()).await?;
    let reader = StreamReader::begin(broker, caller, headers, origin, filter).await?;
    Ok(respond(reader, async |_, event| Some(Message::default().event("event").json_data(&event.event))))
}

/// Stream the status of a stack.
///
/// Server-sent events named `status`, each with the current status on one agent as JSON. Resumable like the stream of
/// events.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/status/stream", tag = "stacks",
    params(("stack" = String, Path, description = "Name or id"),
           ("last-event-id" = Option<String>, Header, description = "Continue after this event")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_status(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> ApiResult<impl IntoResponse> {
    let stack = Arc::new(find_stack(&broker, caller.project(), &stack).await?);
    let filter = StreamFilter { stack: Some(stack.id), agent: None };
    let reader = StreamReader::begin(broker, caller, headers, origin, filter).await?;
    Ok(respond(reader, move |broker, event| {
        let stack = Arc::clone(&stack);
        async move {
            // On an error the stream ends: a client that resumes misses nothing, but a skipped status would be lost.
            let now = current(&broker, &stack, &event).await.map_err(axum::Error::new);
            Some(now.and_then(|now| Message::default().event("status").json_data(now)))
        }
    }))
}

/// Returns the current status: the event only says that something was reported.
async fn current(broker: &Broker, stack: &Stack, event: &StreamedEvent) -> Result<StackStatus, StoreError> {
    let agent = event.event.agent_id;
    let fetch = async || {
        let mut reports = stack_status_fetch(&broker.pool, &stack.project, stack.id, &[agent]).await?;
        Ok::<_, StoreError>(reports.remove(&agent))
    };
    let report = event.report.get_or_try_init(fetch).await?.clone();
    let known = StackOnAgent::of(&broker.index.snapshot(), stack.id, agent);
    Ok(status(stack.into(), event.event.agent_name.clone(), known, report))
}
