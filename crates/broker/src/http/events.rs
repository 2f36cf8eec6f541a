//! Events: what agents reported, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::SequenceId;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::paging::{Asked, cursor, limit};
use crate::state::Broker;
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::events::{EventFilter, event_list};
use crate::store::stacks::{StackRef, stack_fetch};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Of this stack, by name or id.
    pub stack: Option<String>,
    /// Of this agent, by name or id.
    pub agent: Option<String>,
    /// Of this deployment object.
    pub sequence_id: Option<SequenceId>,
    /// Only of this kind.
    pub transition: Option<Transition>,
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// List events, newest first.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, body = Page<Event>)))]
pub async fn list_events(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<EventQuery>,
) -> Result<Json<Page<Event>>, ApiError> {
    let mut filter = EventFilter {
        sequence_id: query.sequence_id,
        transition: query.transition,
        since: query.since,
        until: query.until,
        below: cursor(query.after.as_deref())?,
        ..EventFilter::default()
    };
    if let Some(named) = &query.stack {
        filter.stack = Some(match StackRef::read(named) {
            StackRef::Id(id) => id,
            // Stacks of one name follow each other; the events meant are those of the living or last one.
            name => {
                stack_fetch(&broker.pool, caller.project(), &name)
                    .await?
                    .ok_or_else(|| ApiError::not_found("stack"))?
                    .id
            }
        });
    }
    if let Some(named) = &query.agent {
        let agent = agent_fetch(&broker.pool, &AgentRef::read(named)).await?;
        filter.agent = Some(agent.ok_or_else(|| ApiError::not_found("agent"))?.id);
    }
    let limit = limit(query.limit);
    let recorded = event_list(&broker.pool, caller.project(), filter, limit).await?;
    let page = Page::cut(recorded, limit, |event| event.place.to_string());
    Ok(Json(page.map(|event| event.event)))
}
