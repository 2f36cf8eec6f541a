//! Webhooks and their secrets.

use brokkr_api::WebhookId;
use brokkr_api::webhooks::{Webhook, WebhookFilter, WebhookFormat, WebhookPatch};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};
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

fn read_webhook(row: PgRow) -> Result<Webhook, sqlx::Error> {
    Ok(Webhook {
        id: WebhookId(row.field("id")?),
        project: row.field("project")?,
        name: row.known("name")?,
        url: row.field("url")?,
        format: row.known("format")?,
        filter: row.json("filter")?,
        enabled: row.field("enabled")?,
        disabled_because: row.field("disabled_because")?,
        created_at: row.time("created_at")?,
    })
}

/// A new, enabled webhook.
#[derive(Clone, Copy, Debug)]
pub struct NewWebhook<'a> {
    pub project: &'a str,
    pub id: WebhookId,
    pub name: &'a str,
    pub url: &'a str,
    pub format: WebhookFormat,
    pub filter: &'a WebhookFilter,
}

pub async fn webhook_insert_on_conn(conn: &mut PgConnection, new: &NewWebhook<'_>) -> Result<Webhook> {
    sqlx::query(
        "INSERT INTO webhooks (project, id, name, url, format, filter) VALUES ($1, $2, $3, $4, $5, $6)
         RETURNING project, id, name, url, format, filter, enabled, disabled_because, created_at",
    )
    .bind(new.project)
    .bind(new.id.0)
    .bind(new.name)
    .bind(new.url)
    .bind(new.format.to_string())
    .bind(Json(new.filter))
    .try_map(read_webhook)
    .one(conn, "insert the webhook")
    .await
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
    sqlx::query(
        "SELECT project, id, name, url, format, filter, enabled, disabled_because, created_at FROM webhooks
         WHERE project = $1 AND (id = $2 OR name = $3)",
    )
    .bind(project)
    .bind(id)
    .bind(name)
    .try_map(read_webhook)
    .optional(executor, "read the webhook")
    .await
}

/// Returns up to `limit` webhooks, sorted by name, plus one if there are more.
pub async fn webhook_list(
    pool: &PgPool,
    project: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Webhook>> {
    sqlx::query(
        "SELECT project, id, name, url, format, filter, enabled, disabled_because, created_at FROM webhooks
         WHERE project = $1 AND name > $2 ORDER BY name LIMIT $3",
    )
    .bind(project)
    .bind(after.unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_webhook)
    .all(pool, "list the webhooks")
    .await
}

/// Changes a webhook. Enabling or disabling it clears the reason for which the broker disabled it earlier.
pub async fn webhook_patch_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: &WebhookRef,
    patch: &WebhookPatch,
) -> Result<Option<Webhook>> {
    let (id, name) = webhook.parts();
    sqlx::query(
        "UPDATE webhooks SET url = coalesce($4, url), filter = coalesce($5, filter),
                enabled = coalesce($6, enabled), format = coalesce($7, format),
                disabled_because = CASE WHEN $6::boolean IS NULL THEN disabled_because END
         WHERE project = $1 AND (id = $2 OR name = $3)
         RETURNING project, id, name, url, format, filter, enabled, disabled_because, created_at",
    )
    .bind(project)
    .bind(id)
    .bind(name)
    .bind(&patch.url)
    .bind(patch.filter.as_ref().map(Json))
    .bind(patch.enabled)
    .bind(patch.format.map(|format| format.to_string()))
    .try_map(read_webhook)
    .optional(conn, "change the webhook")
    .await
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
