//! The test button: one signed ping, at once, and what came of it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use brokkr_api::DeliveryId;
use brokkr_api::audit::AuditKind;
use brokkr_api::webhooks::{Attempt, WebhookEvent};
use jiff::Timestamp;

use super::find;
use crate::access::Caller;
use crate::access::origin::Origin;
use crate::state::Broker;
use crate::domain::webhooks::happening::Happening;
use crate::error::ApiError;

/// Send a signed ping to a webhook and answer what came of it. It is not tried again.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/test", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Attempt)))]
pub async fn test_webhook(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Extension(origin): Extension<Arc<Origin>>,
    Path(webhook): Path<String>,
) -> Result<Json<Attempt>, ApiError> {
    let webhook = find(&broker, &caller, &webhook).await?;
    broker.note(AuditKind::Change, &caller, &origin).await?;
    let body = Happening::new(WebhookEvent::Ping, Timestamp::now()).body(&webhook.project);
    let id = DeliveryId::generate().to_string();
    let sent = broker.webhooks.attempt(&broker.pool, &webhook.project, webhook.id, &id, &body).await?;
    Ok(Json(sent.attempt))
}
