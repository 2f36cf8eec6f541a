//! Lists what was, is and could not be sent to a webhook, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::page::Page;
use brokkr_api::webhooks::{Delivery, DeliveryState};
use serde::Deserialize;
use utoipa::IntoParams;

use super::find;
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, cursor, limit};
use crate::store::webhook_deliveries::webhook_delivery_list;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeliveryQuery {
    /// Only those in this state; `dead` lists the dead letters.
    pub state: Option<DeliveryState>,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// List messages to a webhook, newest first. Delivered ones are kept for a week, dead letters for 30 days.
#[utoipa::path(get, path = "/api/v1/webhooks/{webhook}/deliveries", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id"), DeliveryQuery),
    responses((status = 200, body = Page<Delivery>)))]
pub async fn list_webhook_deliveries(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(webhook): Path<String>,
    Asked(query): Asked<DeliveryQuery>,
) -> Result<Json<Page<Delivery>>, ApiError> {
    let webhook = find(&broker, &caller, &webhook).await?;
    let (below, limit) = (cursor(query.after.as_deref())?, limit(query.limit));
    let found =
        webhook_delivery_list(&broker.pool, caller.project(), webhook.id, query.state, below, limit).await?;
    Ok(Json(Page::cut(found, limit, |delivery| delivery.id.to_string())))
}
