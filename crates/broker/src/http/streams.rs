//! Watch streams (server-sent events), resumable with `Last-Event-ID`.

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
use crate::error::ApiError;
use crate::http::paging::Asked;
use crate::http::stacks::status::{Known, status};
use crate::http::streams::reader::{Filter, Follow, answer};
use crate::state::Broker;
use crate::state::streams::StreamedEvent;
use crate::store::StoreError;
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::stack_status::stack_status_fetch;
use crate::store::stacks::{StackRef, stack_fetch};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    /// Of this stack, by name or id.
    pub stack: Option<String>,
    /// Of this agent, by name or id.
    pub agent: Option<String>,
}

/// Follow events: server-sent events named `event`, each the JSON of an event. With `Last-Event-ID`, goes on behind that
/// one and passes over nothing; without, begins now. A message `reset` says that the id is of before a restore.
#[utoipa::path(get, path = "/api/v1/events/stream", tag = "events",
    params(StreamQuery, ("last-event-id" = Option<String>, Header, description = "Go on behind this one")),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream_events(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<StreamQuery>,
    Extension(origin): Extension<Arc<Origin>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let mut filter = Filter::default();
    if let Some(named) = &query.stack {
        let stack = stack_fetch(&broker.pool, caller.project(), &StackRef::read(named)).await?;
        filter.stack = Some(stack.ok_or_else(|| ApiError::not_found("stack"))?.id);
    }
    if let Some(named) = &query.agent {
        let agent = agent_fetch(&broker.pool, &AgentRef::read(named)).await?;
        filter.agent = Some(agent.ok_or_else(|| ApiError::not_found("agent"))?.id);
    }
    let follow = Follow::begin(broker, caller, headers, origin, filter).await?;
    Ok(answer(follow, async |_, told| Some(Message::default().event("event").json_data(&told.event))))
}

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
    let known = Known::of(&broker.index.picture(), stack.id, agent);
    Ok(status(stack, told.event.agent_name.clone(), known, report))
}
