//! Webhooks of a project. Owners change them; viewers see them without secrets.

pub mod deliveries;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::page::Page;
use brokkr_api::tokens::Role;
use brokkr_api::webhooks::{
    CreateWebhook, RotateSecret, Webhook, WebhookFilter, WebhookFormat, WebhookPatch, WebhookWithSecret,
};
use brokkr_api::{ErrorCode, WebhookId};
use http::StatusCode;
use url::Url;
use uuid::Uuid;

use crate::access::Caller;
use crate::domain::webhooks::signature::WebhookSecret;
use crate::domain::webhooks::vault::{SecretOwner, Vault};
use crate::domain::webhooks::{filter, format};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams};
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::state::quota::{Added, quota_check_on_conn};
use crate::store::webhook_deliveries::webhook_delivery_give_up_on_conn;
use crate::store::webhooks::{
    NewWebhook, WebhookRef, webhook_count_on_conn, webhook_delete_on_conn, webhook_fetch,
    webhook_insert_on_conn, webhook_list, webhook_patch_on_conn, webhook_secret_insert_on_conn,
    webhook_secrets_retire_on_conn,
};

/// Hides the path of the URL, which often is a secret, from callers that may not change the webhook.
fn shown(caller: &Caller, mut webhook: Webhook) -> ApiResult<Webhook> {
    if !caller.token()?.role.includes(Role::Owner) {
        let origin = Url::parse(&webhook.url).map(|url| url.origin().ascii_serialization());
        webhook.url = origin.unwrap_or_default() + "/…";
    }
    Ok(webhook)
}

async fn find(broker: &Broker, caller: &Caller, named: &str) -> ApiResult<Webhook> {
    let found = webhook_fetch(&broker.pool, caller.project(), &WebhookRef::read(named)).await?;
    found.ok_or_else(|| ApiError::not_found("webhook"))
}

fn check_url(broker: &Broker, url: &str) -> ApiResult<()> {
    let checked = broker.webhooks.policy.url(url).map(|_| ());
    checked.map_err(|refusal| ApiError::new(ErrorCode::BRK2016, refusal.to_string()))
}

fn check_filter(filter: &WebhookFilter) -> ApiResult<()> {
    filter::check(filter).map_err(|error| ApiError::invalid_request(error.to_string()))
}

fn check_format(format: WebhookFormat, url: &str, filter: &WebhookFilter) -> ApiResult<()> {
    format::check(format, url, filter).map_err(|error| ApiError::invalid_request(error.to_string()))
}

fn vault(broker: &Broker) -> ApiResult<&Vault> {
    let missing = "the broker runs without a secret key and cannot store the secret of a webhook";
    broker.webhooks.vault.as_ref().ok_or_else(|| ApiError::new(ErrorCode::BRK2017, missing))
}

fn cannot_seal(error: crate::domain::webhooks::vault::VaultError) -> ApiError {
    ApiError::new(ErrorCode::BRK9001, "failed to encrypt the secret").because(error)
}

/// The maximum number of webhooks of a project: each is checked for every event of the project.
const MOST: i64 = 50;

/// Create a webhook.
///
/// The response contains its secret, which is not shown again.
#[utoipa::path(post, path = "/api/v1/webhooks", tag = "webhooks", request_body = CreateWebhook,
    responses((status = 201, body = WebhookWithSecret)))]
pub async fn create_webhook(State(broker): BrokerState, change: Change) -> ApiResult {
    let request: CreateWebhook = change.json()?;
    let (project, name) = (change.caller()?.project(), request.name.as_str());
    if name.parse::<Uuid>().is_ok() {
        return Err(ApiError::invalid_request("the name of a webhook must not be a UUID"));
    }
    check_url(&broker, &request.url)?;
    check_filter(&request.filter)?;
    check_format(request.format, &request.url, &request.filter)?;
    let vault = vault(&broker)?;
    write::run(&broker, &change, ResultStorage::Encrypted, async |mut write| {
        if webhook_count_on_conn(write.conn(), project).await? >= MOST {
            let detail = format!("the project already has {MOST} webhooks, the maximum");
            return Err(ApiError::new(ErrorCode::BRK2018, detail));
        }
        let (id, secret) = (WebhookId::generate(), WebhookSecret::generate());
        let sealed =
            vault.seal(SecretOwner { project, webhook: id }, secret.as_bytes()).map_err(cannot_seal)?;
        let CreateWebhook { url, format, filter, .. } = &request;
        let new = NewWebhook { project, id, name, url, format: *format, filter };
        let webhook = match webhook_insert_on_conn(write.conn(), &new).await {
            Err(error) if error.is_taken() => {
                return Err(ApiError::new(ErrorCode::BRK2002, format!("webhook {name} already exists")));
            }
            inserted => inserted?,
        };
        webhook_secret_insert_on_conn(write.conn(), project, id, &sealed).await?;
        quota_check_on_conn(write.conn(), project, Added::Webhook).await?;
        write.finish(StatusCode::CREATED, &WebhookWithSecret { webhook, secret: secret.expose() }).await
    })
    .await
}

/// List the webhooks of the project, by name.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", params(Paging),
    responses((status = 200, body = Page<Webhook>)))]
pub async fn list_webhooks(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<Webhook>>> {
    let limit = paging.limit();
    let webhooks = webhook_list(&broker.pool, caller.project(), paging.after.as_deref(), limit).await?;
    let webhooks = webhooks.into_iter().map(|webhook| shown(&caller, webhook)).collect::<Result<_, _>>()?;
    Ok(Json(Page::cut(webhooks, limit, |webhook| webhook.name.to_string())))
}

/// Get a webhook.
///
/// Its secret is never shown, its full URL only to owners.
#[utoipa::path(get, path = "/api/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Webhook)))]
pub async fn get_webhook(
    State(broker): BrokerState,
    caller: Caller,
    Path(webhook): Path<String>,
) -> ApiResult<Json<Webhook>> {
    let webhook = find(&broker, &caller, &webhook).await?;
    shown(&caller, webhook).map(Json)
}

/// Change a webhook.
///
/// Fields that are not given stay as they are.
#[utoipa::path(patch, path = "/api/v1/webhooks/{webhook}", tag = "webhooks", request_body = WebhookPatch,
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Webhook)))]
pub async fn patch_webhook(
    State(broker): BrokerState,
    Path(webhook): Path<String>,
    change: Change,
) -> ApiResult {
    let patch: WebhookPatch = change.json()?;
    let project = change.caller()?.project();
    patch.url.as_deref().map_or(Ok(()), |url| check_url(&broker, url))?;
    patch.filter.as_ref().map_or(Ok(()), check_filter)?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let (named, missing) = (WebhookRef::read(&webhook), || ApiError::not_found("webhook"));
        let before = webhook_fetch(write.conn(), project, &named).await?.ok_or_else(missing)?;
        write.audit_before(&before);
        let webhook =
            webhook_patch_on_conn(write.conn(), project, &named, &patch).await?.ok_or_else(missing)?;
        check_format(webhook.format, &webhook.url, &webhook.filter)?;
        if !webhook.enabled {
            webhook_delivery_give_up_on_conn(write.conn(), project, webhook.id, "the webhook was disabled")
                .await?;
        }
        write.finish(StatusCode::OK, &webhook).await
    })
    .await
}

/// Delete a webhook.
#[utoipa::path(delete, path = "/api/v1/webhooks/{webhook}", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 204)))]
pub async fn delete_webhook(
    State(broker): BrokerState,
    Path(webhook): Path<String>,
    change: Change,
) -> ApiResult {
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let (named, missing) = (WebhookRef::read(&webhook), || ApiError::not_found("webhook"));
        let before = webhook_fetch(write.conn(), project, &named).await?.ok_or_else(missing)?;
        write.audit_before(&before);
        if !webhook_delete_on_conn(write.conn(), project, &named).await? {
            return Err(missing());
        }
        write.finish_empty().await
    })
    .await
}

const DAY: u32 = 24 * 3600;
const LONGEST: u32 = 7 * DAY;

/// Rotate the secret of a webhook.
///
/// The old secret signs, too, during the overlap. The response contains the new secret, which is not shown again.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/rotate-secret", tag = "webhooks", request_body = RotateSecret,
    params(("webhook" = String, Path, description = "Name or id")),
    responses((status = 200, body = WebhookWithSecret)))]
pub async fn rotate_webhook_secret(
    State(broker): BrokerState,
    Path(webhook): Path<String>,
    change: Change,
) -> ApiResult {
    let request: RotateSecret = change.json_or_default()?;
    let project = change.caller()?.project();
    let overlap = request.overlap_seconds.unwrap_or(DAY);
    if overlap > LONGEST {
        return Err(ApiError::invalid_request(format!("overlap_seconds must be at most {LONGEST}")));
    }
    let vault = vault(&broker)?;
    write::run(&broker, &change, ResultStorage::Encrypted, async |mut write| {
        let webhook = webhook_fetch(write.conn(), project, &WebhookRef::read(&webhook)).await?;
        let webhook = webhook.ok_or_else(|| ApiError::not_found("webhook"))?;
        let secret = WebhookSecret::generate();
        let sealed = vault
            .seal(SecretOwner { project, webhook: webhook.id }, secret.as_bytes())
            .map_err(cannot_seal)?;
        webhook_secrets_retire_on_conn(write.conn(), project, webhook.id, overlap).await?;
        webhook_secret_insert_on_conn(write.conn(), project, webhook.id, &sealed).await?;
        write.finish(StatusCode::OK, &WebhookWithSecret { webhook, secret: secret.expose() }).await
    })
    .await
}
