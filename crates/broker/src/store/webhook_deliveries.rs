//! Deliveries to webhooks: claimed with a lease, finished only by the holder of the claim.

use brokkr_api::webhooks::{Attempt, Delivery, DeliveryState, WebhookEvent};
use brokkr_api::{DeliveryId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};
use std::time::Duration;
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};

/// Rows deleted at once.
const SLICE: u64 = 5000;

/// The condition that no earlier message of its alert is pending, for the message `m`: messages of one alert are delivered in their order.
macro_rules! is_first_of_alert {
    () => {
        "NOT EXISTS (
            SELECT FROM webhook_deliveries before
            WHERE before.project = m.project AND before.webhook_id = m.webhook_id AND before.alert_id = m.alert_id
              AND before.state = 'pending' AND (before.created_at, before.id) < (m.created_at, m.id))"
    };
}
pub(super) use is_first_of_alert;

/// A message that this replica has to send before the lease ends.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    pub project: String,
    pub webhook: WebhookId,
    pub id: DeliveryId,
    pub body: Vec<u8>,
    /// The number of attempts, including this one.
    pub attempts: u32,
    claim: Uuid,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Delivered,
    Retry(Duration),
    GiveUp,
}

/// Claims messages that are due: at most `each` per webhook, and none for the webhooks in `busy`, so that a
/// receiver that hangs does not delay others. Concurrent claims get different messages.
pub async fn webhook_delivery_claim(
    pool: &PgPool,
    busy: &[WebhookId],
    each: i64,
    total: i64,
    lease: Duration,
) -> Result<Vec<ClaimedDelivery>> {
    let claim = Uuid::now_v7();
    let rows: Vec<(String, Uuid, Uuid, String, i32)> = sqlx::query_as(
        concat!(
            "WITH due AS (
            SELECT d.project, d.webhook_id, d.id
            FROM webhooks w CROSS JOIN LATERAL (
                SELECT m.project, m.webhook_id, m.id FROM webhook_deliveries m
                WHERE m.project = w.project AND m.webhook_id = w.id AND m.state = 'pending' AND m.due_at <= now()
                  AND ",
            is_first_of_alert!(),
            "
                ORDER BY m.due_at, m.id LIMIT $2 FOR UPDATE OF m SKIP LOCKED) d
            WHERE w.enabled AND w.id <> ALL($1) LIMIT $3)
         UPDATE webhook_deliveries d
         SET claim_token = $4, due_at = now() + make_interval(secs => $5), attempts = d.attempts + 1
         FROM due WHERE d.project = due.project AND d.webhook_id = due.webhook_id AND d.id = due.id
         RETURNING d.project, d.webhook_id, d.id, d.body::text, d.attempts"
        ),
    )
    .bind(busy.iter().map(|webhook| webhook.0).collect::<Vec<_>>())
    .bind(each)
    .bind(total)
    .bind(claim)
    .bind(lease.as_secs_f64())
    .all(pool, "claim webhook messages")
    .await?;
    let claimed = rows.into_iter().map(|(project, webhook, id, body, attempts)| ClaimedDelivery {
        project,
        webhook: WebhookId(webhook),
        id: DeliveryId(id),
        body: body.into_bytes(),
        attempts: attempts.unsigned_abs(),
        claim,
    });
    Ok(claimed.collect())
}

/// Stores the outcome of an attempt; returns false if the claim was lost meanwhile and nothing was stored.
pub async fn webhook_delivery_finish_on_conn(
    conn: &mut PgConnection,
    claimed: &ClaimedDelivery,
    attempt: &Attempt,
    next: DeliveryOutcome,
) -> Result<bool> {
    let (state, wait) = match next {
        DeliveryOutcome::Delivered => (DeliveryState::Delivered, Duration::ZERO),
        DeliveryOutcome::Retry(wait) => (DeliveryState::Pending, wait),
        DeliveryOutcome::GiveUp => (DeliveryState::Dead, Duration::ZERO),
    };
    let finished = sqlx::query(
        "UPDATE webhook_deliveries SET state = $5, due_at = now() + make_interval(secs => $6), claim_token = NULL,
                last_attempt_at = now(), last_status = $7, last_error = $8, last_millis = $9, last_response = $10
         WHERE project = $1 AND webhook_id = $2 AND id = $3 AND claim_token = $4",
    )
    .bind(&claimed.project)
    .bind(claimed.webhook.0)
    .bind(claimed.id.0)
    .bind(claimed.claim)
    .bind(state.to_string())
    .bind(wait.as_secs_f64())
    .bind(attempt.status.map(i32::from))
    .bind(&attempt.error)
    .bind(i32::try_from(attempt.millis).unwrap_or(i32::MAX))
    .bind(&attempt.answer)
    .affected(conn, "store the outcome of a webhook message")
    .await?;
    Ok(finished > 0)
}

/// A new message.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    pub webhook: WebhookId,
    pub event: WebhookEvent,
    pub body: Vec<u8>,
    /// The alert that it is about: its messages are delivered in their order.
    pub alert: Option<Uuid>,
}

pub async fn webhook_delivery_insert_on_conn(
    conn: &mut PgConnection,
    project: &str,
    new: &[NewDelivery],
) -> Result<()> {
    sqlx::query(
        "INSERT INTO webhook_deliveries (project, webhook_id, id, event, body, alert_id)
         SELECT $1, r.webhook_id, r.id, r.event, r.body::jsonb, r.alert_id
         FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::uuid[]) AS r (webhook_id, id, event, body, alert_id)",
    )
    .bind(project)
    .bind(new.iter().map(|delivery| delivery.webhook.0).collect::<Vec<_>>())
    .bind(new.iter().map(|_| DeliveryId::generate().0).collect::<Vec<_>>())
    .bind(new.iter().map(|delivery| delivery.event.to_string()).collect::<Vec<_>>())
    .bind(new.iter().map(|delivery| String::from_utf8_lossy(&delivery.body)).collect::<Vec<_>>())
    .bind(new.iter().map(|delivery| delivery.alert).collect::<Vec<_>>())
    .run(conn, "insert webhook messages")
    .await
}

/// Makes the pending messages of a disabled webhook dead letters.
pub async fn webhook_delivery_give_up_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: WebhookId,
    because: &str,
) -> Result<()> {
    sqlx::query(
        "UPDATE webhook_deliveries
         SET state = 'dead', claim_token = NULL, last_error = $3, last_attempt_at = coalesce(last_attempt_at, now())
         WHERE project = $1 AND webhook_id = $2 AND state = 'pending'",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(because)
    .run(conn, "give up the pending messages of the webhook")
    .await
}

/// Makes a message due again, from the first attempt on. Returns false if it does not exist.
pub async fn webhook_delivery_resend_on_conn(
    conn: &mut PgConnection,
    project: &str,
    webhook: WebhookId,
    delivery: DeliveryId,
) -> Result<bool> {
    let resent = sqlx::query(
        "UPDATE webhook_deliveries SET state = 'pending', due_at = now(), attempts = 0, claim_token = NULL
         WHERE project = $1 AND webhook_id = $2 AND id = $3",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(delivery.0)
    .affected(conn, "resend a webhook message")
    .await?;
    Ok(resent > 0)
}

fn read_delivery(row: PgRow) -> Result<Delivery, sqlx::Error> {
    let state: DeliveryState = row.known("state")?;
    let last_attempt_at = row.time_opt("last_attempt_at")?;
    let attempt = Attempt {
        delivered: state == DeliveryState::Delivered,
        status: row.field::<Option<i32>>("last_status")?.and_then(|status| u16::try_from(status).ok()),
        error: row.field("last_error")?,
        millis: row.field::<Option<i32>>("last_millis")?.unwrap_or_default().unsigned_abs(),
        answer: row.field::<Option<String>>("last_response")?.unwrap_or_default(),
    };
    Ok(Delivery {
        id: DeliveryId(row.field("id")?),
        webhook_id: WebhookId(row.field("webhook_id")?),
        event: row.known("event")?,
        state,
        created_at: row.time("created_at")?,
        attempts: row.field::<i32>("attempts")?.unsigned_abs(),
        due_at: Some(row.time("due_at")?).filter(|_| state == DeliveryState::Pending),
        last_attempt: last_attempt_at.map(|_| attempt),
        last_attempt_at,
        body: row.json("body")?,
    })
}

/// Returns up to `limit` messages below the cursor, newest first, plus one if there are more.
pub async fn webhook_delivery_list(
    pool: &PgPool,
    project: &str,
    webhook: WebhookId,
    state: Option<DeliveryState>,
    below: Option<DeliveryId>,
    limit: usize,
) -> Result<Vec<Delivery>> {
    sqlx::query(
        "SELECT webhook_id, id, event, body, state, created_at, due_at, attempts, last_attempt_at, last_status,
                last_error, last_millis, last_response
         FROM webhook_deliveries
         WHERE project = $1 AND webhook_id = $2 AND ($3::text IS NULL OR state = $3)
           AND ($4::uuid IS NULL OR id < $4) ORDER BY id DESC LIMIT $5",
    )
    .bind(project)
    .bind(webhook.0)
    .bind(state.map(|state| state.to_string()))
    .bind(below.map(|id| id.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_delivery)
    .all(pool, "list the messages of the webhook")
    .await
}

/// Deletes old delivered messages and old dead letters.
pub async fn webhook_delivery_delete_old(
    pool: &PgPool,
    delivered_after: Duration,
    dead_after: Duration,
) -> Result<u64> {
    let mut deleted = 0;
    // Until none is left: messages may arrive faster than one slice per round.
    loop {
        let slice = sqlx::query(
            "DELETE FROM webhook_deliveries WHERE ctid IN (
                SELECT ctid FROM webhook_deliveries
                WHERE state <> 'pending' AND last_attempt_at < now() - make_interval(secs => CASE state
                    WHEN 'delivered' THEN $1 ELSE $2 END) LIMIT $3)",
        )
        .bind(delivered_after.as_secs_f64())
        .bind(dead_after.as_secs_f64())
        .bind(SLICE.cast_signed())
        .affected(pool, "delete old webhook messages")
        .await?;
        deleted += slice;
        if slice < SLICE {
            return Ok(deleted);
        }
    }
}
