//! Deletes a webhook, with its secrets and all that was to be sent.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhooks::{WebhookRef, webhook_delete_on_conn, webhook_fetch};

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
    let (named, missing) = (WebhookRef::read(&webhook), || ApiError::not_found("webhook"));
    let before = webhook_fetch(write.conn(), project, &named).await?.ok_or_else(missing)?;
    write.was(&before);
    if !webhook_delete_on_conn(write.conn(), project, &named).await? {
        return Err(missing());
    }
    write.finish_empty().await
}
