//! Changes a webhook: where it goes, what it is told, whether it is on.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::webhooks::{Webhook, WebhookPatch};
use http::StatusCode;

use super::{check_filter, check_url};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhook_deliveries::webhook_delivery_give_up_on_conn;
use crate::store::webhooks::{WebhookRef, webhook_fetch, webhook_patch_on_conn};

/// Change a webhook. What is not given stays.
#[utoipa::path(patch, path = "/api/v1/webhooks/{webhook}", tag = "webhooks", request_body = WebhookPatch,
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Webhook)))]
pub async fn patch_webhook(
    State(broker): State<Arc<Broker>>,
    Path(webhook): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let patch: WebhookPatch = change.json()?;
    let project = change.caller()?.project();
    patch.url.as_deref().map_or(Ok(()), |url| check_url(&broker, url))?;
    patch.filter.as_ref().map_or(Ok(()), check_filter)?;
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let (named, missing) = (WebhookRef::read(&webhook), || ApiError::not_found("webhook"));
    let before = webhook_fetch(write.conn(), project, &named).await?.ok_or_else(missing)?;
    write.was(&before);
    let webhook = webhook_patch_on_conn(write.conn(), project, &named, &patch).await?.ok_or_else(missing)?;
    if !webhook.enabled {
        webhook_delivery_give_up_on_conn(write.conn(), project, webhook.id, "the webhook was switched off")
            .await?;
    }
    write.finish(StatusCode::OK, &webhook).await
}
