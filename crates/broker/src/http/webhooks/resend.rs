//! Sends a message once more: a dead letter, or one that the receiver lost.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::DeliveryId;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhook_deliveries::webhook_delivery_resend_on_conn;
use crate::store::webhooks::{WebhookRef, webhook_fetch};

/// Send a message again, with the same `webhook-id`, from the first attempt on.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/deliveries/{delivery}/resend", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id"), ("delivery" = String, Path, description = "Id")),
    responses((status = 204)))]
pub async fn resend_webhook_delivery(
    State(broker): State<Arc<Broker>>,
    Path((webhook, delivery)): Path<(String, String)>,
    change: Change,
) -> Result<Response, ApiError> {
    let project = change.caller()?.project();
    let delivery: DeliveryId = delivery.parse().map_err(|_| ApiError::not_found("message"))?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let webhook = webhook_fetch(write.conn(), project, &WebhookRef::read(&webhook)).await?;
    let webhook = webhook.ok_or_else(|| ApiError::not_found("webhook"))?;
    if !webhook.enabled {
        return Err(ApiError::unreadable("the webhook is switched off: switch it on first"));
    }
    if !webhook_delivery_resend_on_conn(write.conn(), project, webhook.id, delivery).await? {
        return Err(ApiError::not_found("message"));
    }
    write.send_soon();
    write.finish_empty().await
}
