//! Every event of a project as it happens, or of a stack or an agent.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::Event as Message;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use super::follow::{Filter, Follow, answer};
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::Asked;
use crate::store::agents::{AgentRef, agent_fetch};
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
