//! Deliveries to a webhook: list, resend, test.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use brokkr_api::DeliveryId;
use brokkr_api::audit::AuditKind;
use brokkr_api::page::Page;
use brokkr_api::webhooks::{Attempt, Delivery, DeliveryState, WebhookEvent};
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::domain::webhooks::format::WebhookMessage;
use crate::domain::webhooks::happening::Happening;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{QueryParams, cursor, limit};
use crate::http::webhooks::find;
use crate::http::write::{self, ResultStorage};
use crate::store::webhook_deliveries::{webhook_delivery_list, webhook_delivery_resend_on_conn};
use crate::store::webhooks::{WebhookRef, webhook_fetch};

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeliveryQuery {
    /// Only deliveries in this state; `dead` lists the dead letters.
    pub state: Option<DeliveryState>,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

/// List deliveries to a webhook, newest first.
///
/// Successful deliveries are kept for a week, dead letters for 30 days.
#[utoipa::path(get, path = "/api/v1/webhooks/{webhook}/deliveries", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id"), DeliveryQuery),
    responses((status = 200, body = Page<Delivery>)))]
pub async fn list_webhook_deliveries(
    State(broker): BrokerState,
    caller: Caller,
    Path(webhook): Path<String>,
    QueryParams(query): QueryParams<DeliveryQuery>,
) -> ApiResult<Json<Page<Delivery>>> {
    let webhook = find(&broker, &caller, &webhook).await?;
    let (below, limit) = (cursor(query.after.as_deref())?, limit(query.limit));
    let found =
        webhook_delivery_list(&broker.pool, caller.project(), webhook.id, query.state, below, limit).await?;
    Ok(Json(Page::cut(found, limit, |delivery| delivery.id.to_string())))
}

/// Send a delivery again.
///
/// It has the same `webhook-id` and starts with the first attempt.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/deliveries/{delivery}/resend", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id"), ("delivery" = String, Path, description = "Id")),
    responses((status = 204)))]
pub async fn resend_webhook_delivery(
    State(broker): BrokerState,
    Path((webhook, delivery)): Path<(String, String)>,
    change: Change,
) -> ApiResult {
    let project = change.caller()?.project();
    let delivery: DeliveryId = delivery.parse().map_err(|_| ApiError::not_found("delivery"))?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let webhook = webhook_fetch(write.conn(), project, &WebhookRef::read(&webhook)).await?;
        let webhook = webhook.ok_or_else(|| ApiError::not_found("webhook"))?;
        if !webhook.enabled {
            return Err(ApiError::invalid_request("the webhook is disabled; enable it first"));
        }
        if !webhook_delivery_resend_on_conn(write.conn(), project, webhook.id, delivery).await? {
            return Err(ApiError::not_found("delivery"));
        }
        write.wake_webhook_sender();
        write.finish_empty().await
    })
    .await
}

/// Send a signed ping to a webhook and return the result.
///
/// It is not retried. With the format `pagerduty`, it is the end of an alert that does not exist, which has no effect.
#[utoipa::path(post, path = "/api/v1/webhooks/{webhook}/test", tag = "webhooks",
    params(("webhook" = String, Path, description = "Name or id")), responses((status = 200, body = Attempt)))]
pub async fn test_webhook(
    State(broker): BrokerState,
    caller: Caller,
    Extension(origin): Extension<Arc<Origin>>,
    Path(webhook): Path<String>,
) -> ApiResult<Json<Attempt>> {
    let webhook = find(&broker, &caller, &webhook).await?;
    broker.note(AuditKind::Change, &caller, &origin).await?;
    let ping = Happening::new(WebhookEvent::Ping, Timestamp::now());
    let body = WebhookMessage::Happening(&ping).body(webhook.format, &webhook.project);
    let id = DeliveryId::generate().to_string();
    let sent = broker.webhooks.attempt(&broker.pool, &webhook.project, webhook.id, &id, &body).await?;
    Ok(Json(sent.attempt))
}
