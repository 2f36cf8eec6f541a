//! Makes a webhook. The secret is ours, and shown this once.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::webhooks::{CreateWebhook, WebhookWithSecret};
use brokkr_api::{ErrorCode, WebhookId};
use http::StatusCode;
use uuid::Uuid;

use super::{cannot_seal, check_filter, check_url, vault};
use crate::state::Broker;
use crate::domain::webhooks::signature::WebhookSecret;
use crate::domain::webhooks::vault::SecretOwner;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::http::write::{Begun, Keep, Write};
use crate::store::webhooks::{
    NewWebhook, webhook_count_on_conn, webhook_insert_on_conn, webhook_secret_insert_on_conn,
};

/// Each is looked at whenever something happens in its project.
const MOST: i64 = 50;

/// Make a webhook. The answer holds its secret, which is not shown again.
#[utoipa::path(post, path = "/api/v1/webhooks", tag = "webhooks", request_body = CreateWebhook,
    responses((status = 201, body = WebhookWithSecret)))]
pub async fn create_webhook(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let wanted: CreateWebhook = change.json()?;
    let (project, name) = (change.caller()?.project(), wanted.name.as_str());
    if name.parse::<Uuid>().is_ok() {
        return Err(ApiError::unreadable("a webhook cannot be called like an id"));
    }
    check_url(&broker, &wanted.url)?;
    check_filter(&wanted.filter)?;
    let vault = vault(&broker)?;
    let mut write = match Write::begin(&broker, &change, Keep::Sealed).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    if webhook_count_on_conn(write.conn(), project).await? >= MOST {
        let detail = format!("the project has {MOST} webhooks, which is the most");
        return Err(ApiError::new(ErrorCode::BRK2018, detail));
    }
    let (id, secret) = (WebhookId::generate(), WebhookSecret::generate());
    let sealed = vault.seal(SecretOwner { project, webhook: id }, secret.as_bytes()).map_err(cannot_seal)?;
    let new = NewWebhook { project, id, name, url: &wanted.url, filter: &wanted.filter };
    let webhook = match webhook_insert_on_conn(write.conn(), &new).await {
        Err(error) if error.is_taken() => {
            return Err(ApiError::new(
                ErrorCode::BRK2002,
                format!("there is a webhook called {name} already"),
            ));
        }
        inserted => inserted?,
    };
    webhook_secret_insert_on_conn(write.conn(), project, id, &sealed).await?;
    quota_check_on_conn(write.conn(), project, Added::Webhook).await?;
    write.finish(StatusCode::CREATED, &WebhookWithSecret { webhook, secret: secret.expose() }).await
}
