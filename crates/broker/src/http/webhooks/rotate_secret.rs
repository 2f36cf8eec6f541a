//! Gives a webhook a new secret. The old one signs, too, for a while, so that no receiver misses a message.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::webhooks::{RotateSecret, WebhookWithSecret};
use http::StatusCode;

use super::{cannot_seal, vault};
use crate::state::Broker;
use crate::domain::webhooks::signature::WebhookSecret;
use crate::domain::webhooks::vault::SecretOwner;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhooks::{
    WebhookRef, webhook_fetch, webhook_secret_insert_on_conn, webhook_secrets_retire_on_conn,
};

const DAY: u32 = 24 * 3600;
const LONGEST: u32 = 7 * DAY;

/// Rotate the secret of a webhook. The answer holds the new one, which is not shown again.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/rotate-secret", tag = "webhooks", request_body = RotateSecret,
    params(("webhook" = String, Path, description = "Name or id")),
    responses((status = 200, body = WebhookWithSecret)))]
pub async fn rotate_webhook_secret(
    State(broker): State<Arc<Broker>>,
    Path(webhook): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: RotateSecret = change.json_or_default()?;
    let project = change.caller()?.project();
    let overlap = wanted.overlap_seconds.unwrap_or(DAY);
    if overlap > LONGEST {
        return Err(ApiError::unreadable(format!(
            "two secrets are valid together for at most {LONGEST} seconds"
        )));
    }
    let vault = vault(&broker)?;
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let webhook = webhook_fetch(write.conn(), project, &WebhookRef::read(&webhook)).await?;
    let webhook = webhook.ok_or_else(|| ApiError::not_found("webhook"))?;
    let secret = WebhookSecret::generate();
    let sealed =
        vault.seal(SecretOwner { project, webhook: webhook.id }, secret.as_bytes()).map_err(cannot_seal)?;
    webhook_secrets_retire_on_conn(write.conn(), project, webhook.id, overlap).await?;
    webhook_secret_insert_on_conn(write.conn(), project, webhook.id, &sealed).await?;
    write.finish(StatusCode::OK, &WebhookWithSecret { webhook, secret: secret.expose() }).await
}
