//! Events: what agents reported, newest first.

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
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::find_agent_id;
use crate::http::paging::{QueryParams, cursor, limit};
use crate::store::events::{EventFilter, event_list};
use crate::store::stacks::{StackRef, stack_fetch};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events of this stack, by name or id.
    pub stack: Option<String>,
    /// Only events of this agent, by name or id.
    pub agent: Option<String>,
    /// Only events of this deployment object.
    pub sequence_id: Option<SequenceId>,
    /// Only events of this transition.
    pub transition: Option<Transition>,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

/// List events, newest first.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, body = Page<Event>)))]
pub async fn list_events(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<EventQuery>,
) -> ApiResult<Json<Page<Event>>> {
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
            // Several stacks may have had this name: use the one that is not deleted, otherwise the one that
            // was deleted last.
            name => {
                stack_fetch(&broker.pool, caller.project(), &name)
                    .await?
                    .ok_or_else(|| ApiError::not_found("stack"))?
                    .id
            }
        });
    }
    filter.agent = find_agent_id(&broker, &caller, query.agent.as_deref()).await?;
    let limit = limit(query.limit);
    let recorded = event_list(&broker.pool, caller.project(), filter, limit).await?;
    let page = Page::cut(recorded, limit, |event| event.place.to_string());
    Ok(Json(page.map(|event| event.event)))
}
