//! Deletes a webhook, with its secrets and all that was to be sent.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use crate::broker::Broker;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhooks::{WebhookRef, webhook_delete_on_conn};

/// Delete a webhook.
#[utoipa::path(delete, path = "/api/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 204)))]
pub async fn delete_webhook(
    State(broker): State<Arc<Broker>>,
    Path(webhook): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let project = change.caller()?.project();
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    if !webhook_delete_on_conn(write.conn(), project, &WebhookRef::read(&webhook)).await? {
        return Err(ApiError::not_found("webhook"));
    }
    write.finish_empty().await
}
