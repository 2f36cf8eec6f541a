//! Webhooks and their secrets.

use brokkr_api::WebhookId;
use brokkr_api::webhooks::{Webhook, WebhookFilter, WebhookPatch};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::{Doing as _, Fetch as _, Result, Run as _, known};
use crate::domain::webhooks::vault::Sealed;

/// The largest number of secrets that sign at the same time: the newest ones.
const LIVE_SECRETS: i64 = 3;

/// The id or name of a webhook.
#[derive(Clone, Debug)]
pub enum WebhookRef {
    Id(WebhookId),
    Name(String),
}

impl WebhookRef {
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }

    fn parts(&self) -> (Option<Uuid>, Option<&str>) {
        match self {
            Self::Id(id) => (Some(id.0), None),
            Self::Name(name) => (None, Some(name)),
        }
    }
}

#[derive(sqlx::FromRow)]
struct WebhookRow {
    project: String,
    id: Uuid,
    name: String,
    url: String,
    filter: Json<WebhookFilter>,
    enabled: bool,
    disabled_because: Option<String>,
    created_at: jiff_sqlx::Timestamp,
}

impl WebhookRow {
    fn webhook(self) -> Result<Webhook, sqlx::Error> {
        Ok(Webhook {
            id: WebhookId(self.id),
            project: self.project,
            name: known(&self.name)?,
            url: self.url,
            filter: self.filter.0,
            enabled: self.enabled,
            disabled_because: self.disabled_because,
            created_at: self.created_at.to_jiff(),
        })
    }
}

/// A new, enabled webhook.
#[derive(Clone, Copy, Debug)]
pub struct NewWebhook<'a> {
    pub project: &'a str,
    pub id: WebhookId,
    pub name: &'a str,
    pub url: &'a str,
    pub filter: &'a WebhookFilter,
}

pub async fn webhook_insert_on_conn(conn: &mut PgConnection, new: &NewWebhook<'_>) -> Result<Webhook> {
    let row: WebhookRow = sqlx::query_as(
        "INSERT INTO webhooks (project, id, name, url, filter) VALUES ($1, $2, $3, $4, $5)
         RETURNING project, id, name, url, filter, enabled, disabled_because, created_at",
    )
    .bind(new.project)
    .bind(new.id.0)
    .bind(new.name)
    .bind(new.url)
    .bind(Json(new.filter))
    .one(conn, "insert the webhook")
    .await?;
    row.webhook().doing("insert the webhook")
}

pub async fn webhook_count_on_conn(conn: &mut PgConnection, project: &str) -> Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM webhooks WHERE project = $1")
        .bind(project)
        .one(conn, "count the webhooks")
        .await
}

pub async fn webhook_fetch(
    executor: impl PgExecutor<'_>,
    project: &str,
    webhook: &WebhookRef,
) -> Result<Option<Webhook>> {
    let (id, name) = webhook.parts();
    let row: Option<WebhookRow> = sqlx::query_as(
        "SELECT project, id, name, url, filter, enabled, disabled_because, created_at FROM webhooks
         WHERE project = $1 AND (id = $2 OR name = $3)",
    )
    .bind(project)
    .bind(id)
    .bind(name)
    .optional(executor, "read the webhook")
    .await?;
    row.map(WebhookRow::webhook).transpose().doing("read the webhook")
}

/// Returns up to `limit` webhooks, sorted by name, plus one if there are more.
pub async fn webhook_list(
    pool: &PgPool,
    project: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Webhook>> {
    let rows: Vec<WebhookRow> = sqlx::query_as(
        "SELECT project, id, name, url, filter, enabled, disabled_because, created_at FROM webhooks
         WHERE project = $1 AND name > $2 ORDER BY name LIMIT $3",
    )
    .bind(project)
    .bind(after.unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .all(pool, "list the webhooks")
    .await?;
    rows.into_iter().map(WebhookRow::webhook).collect::<Result<_, _>>().doing("list the webhooks")
}

/// Changes a webhook. Enabling or disabling it clears an earlier reason.
pub async fn webhook_patch_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: &WebhookRef,
    patch: &WebhookPatch,
) -> Result<Option<Webhook>> {
    let (id, name) = webhook.parts();
    let row: Option<WebhookRow> = sqlx::query_as(
        "UPDATE webhooks SET url = coalesce($4, url), filter = coalesce($5, filter),
                enabled = coalesce($6, enabled),
                disabled_because = CASE WHEN $6::boolean IS NULL THEN disabled_because END
         WHERE project = $1 AND (id = $2 OR name = $3)
         RETURNING project, id, name, url, filter, enabled, disabled_because, created_at",
    )
    .bind(project)
    .bind(id)
    .bind(name)
    .bind(&patch.url)
    .bind(patch.filter.as_ref().map(Json))
    .bind(patch.enabled)
    .optional(conn, "change the webhook")
    .await?;
    row.map(WebhookRow::webhook).transpose().doing("change the webhook")
}

/// Disables a webhook because of a response of its receiver.
pub async fn webhook_disable_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: WebhookId,
    because: &str,
) -> Result<()> {
    sqlx::query("UPDATE webhooks SET enabled = false, disabled_because = $3 WHERE project = $1 AND id = $2")
        .bind(project)
        .bind(webhook.0)
        .bind(because)
        .run(conn, "disable the webhook")
        .await
}

/// Deletes a webhook with its secrets and deliveries. Returns false if it does not exist.
pub async fn webhook_delete_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: &WebhookRef,
) -> Result<bool> {
    let (id, name) = webhook.parts();
    let deleted = sqlx::query("DELETE FROM webhooks WHERE project = $1 AND (id = $2 OR name = $3)")
        .bind(project)
        .bind(id)
        .bind(name)
        .affected(conn, "delete the webhook")
        .await?;
    Ok(deleted > 0)
}

pub async fn webhook_secret_insert_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: WebhookId,
    sealed: &Sealed,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO webhook_secrets (project, webhook_id, id, key_id, sealed) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(Uuid::now_v7())
    .bind(&sealed.key_id)
    .bind(&sealed.bytes)
    .run(conn, "insert the secret of the webhook")
    .await
}

/// Lets the current secrets expire after a while, and deletes expired ones.
pub async fn webhook_secrets_retire_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: WebhookId,
    overlap_seconds: u32,
) -> Result<()> {
    sqlx::query(
        "UPDATE webhook_secrets
         SET valid_until = least(valid_until, now() + make_interval(secs => $3))
         WHERE project = $1 AND webhook_id = $2",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(f64::from(overlap_seconds))
    .run(&mut *conn, "retire the secrets of the webhook")
    .await?;
    sqlx::query(
        "DELETE FROM webhook_secrets
         WHERE project = $1 AND webhook_id = $2 AND (valid_until <= now() OR id NOT IN (
            SELECT id FROM webhook_secrets WHERE project = $1 AND webhook_id = $2 ORDER BY id DESC LIMIT $3))",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(LIVE_SECRETS - 1)
    .run(conn, "delete old secrets of the webhook")
    .await
}

/// Returns the secrets that sign now, newest first.
pub async fn webhook_secrets_fetch(pool: &PgPool, project: &str, webhook: WebhookId) -> Result<Vec<Sealed>> {
    let rows: Vec<(String, Vec<u8>)> = sqlx::query_as(
        "SELECT key_id, sealed FROM webhook_secrets
         WHERE project = $1 AND webhook_id = $2 AND (valid_until IS NULL OR valid_until > now()) ORDER BY id DESC",
    )
    .bind(project)
    .bind(webhook.0)
    .all(pool, "read the secrets of the webhook")
    .await?;
    Ok(rows.into_iter().map(|(key_id, bytes)| Sealed { key_id, bytes }).collect())
}
