//! Lists the webhooks of the project by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::webhooks::Webhook;

use super::shown;
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging};
use crate::store::webhooks::webhook_list;

/// List the webhooks, by name.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", params(Paging),
    responses((status = 200, body = Page<Webhook>)))]
pub async fn list_webhooks(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<Webhook>>, ApiError> {
    let limit = paging.limit();
    let webhooks = webhook_list(&broker.pool, caller.project(), paging.after.as_deref(), limit).await?;
    let webhooks = webhooks.into_iter().map(|webhook| shown(&caller, webhook)).collect::<Result<_, _>>()?;
    Ok(Json(Page::cut(webhooks, limit, |webhook| webhook.name.to_string())))
}
