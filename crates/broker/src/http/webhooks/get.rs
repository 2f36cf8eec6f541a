//! One webhook, by name or id.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::webhooks::Webhook;

use super::{find, shown};
use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;

/// Read a webhook. Its secret is never shown, its address only to owners.
#[utoipa::path(get, path = "/api/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Webhook)))]
pub async fn get_webhook(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(webhook): Path<String>,
) -> Result<Json<Webhook>, ApiError> {
    let webhook = find(&broker, &caller, &webhook).await?;
    shown(&caller, webhook).map(Json)
}
