//! Sends messages to webhooks.
//!
//! Waits for the first of: a commit of this replica that wrote a message, the end of a send, the next due
//! time, and ten seconds, because other replicas write messages, too. Each round updates alarms, claims
//! messages that are due and sends each in its own task, outside any transaction. If the sending replica
//! dies, the message is due again when its lease ends, with the same `webhook-id`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::WebhookId;
use brokkr_api::webhooks::Attempt;
use jiff::Timestamp;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::domain::webhooks::backoff::backoff;
use crate::state::webhooks::Webhooks;
use crate::state::webhooks::send::{SendOutcome, TIMEOUT};
use crate::store::webhook_deliveries::{
    ClaimedDelivery, DeliveryOutcome, webhook_delivery_claim, webhook_delivery_delete_old,
    webhook_delivery_finish_on_conn, webhook_delivery_give_up_on_conn,
};
use crate::store::webhook_notices::{webhook_next_due, webhook_update_alarms_on_conn};
use crate::store::webhooks::webhook_disable_on_conn;
use crate::store::{Doing as _, StoreError};

const MAX_PAUSE: Duration = Duration::from_secs(10);
const MIN_PAUSE: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Longer than any attempt takes.
const LEASE: Duration = TIMEOUT.saturating_add(Duration::from_secs(15));
/// Messages that this replica sends to one webhook at a time.
const PER_WEBHOOK: i64 = 4;
/// Messages that this replica sends at a time.
const TOTAL: usize = 256;
const TIDY_EVERY: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const DELIVERED_FOR: Duration = DAY.saturating_mul(7);
const DEAD_FOR: Duration = DAY.saturating_mul(30);
/// How long sends may take when the replica stops; another replica repeats interrupted ones.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Sends messages until stopped.
pub async fn run(webhooks: Arc<Webhooks>, pool: PgPool, stop: CancellationToken) {
    let mut sending = Sending::default();
    let mut tidied = tokio::time::Instant::now();
    let mut failing = false;
    loop {
        let pause = match round(&webhooks, &pool, &mut sending).await {
            Ok(pause) => {
                failing = false;
                pause
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "failed to read pending webhook messages; retrying");
                }
                AFTER_FAILURE
            }
        };
        if tidied.elapsed() >= TIDY_EVERY {
            tidied = tokio::time::Instant::now();
            if let Err(error) = webhook_delivery_delete_old(&pool, DELIVERED_FOR, DEAD_FOR).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to delete old webhook messages; will retry");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = webhooks.notified() => {}
            () = sending.one_ended() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    if tokio::time::timeout(STOP_WITHIN, sending.all_ended()).await.is_err() {
        tracing::info!("stopped while sending webhook messages; they will be sent again");
    }
}

/// Does what is due; returns how long to wait for the next round.
async fn round(
    webhooks: &Arc<Webhooks>,
    pool: &PgPool,
    sending: &mut Sending,
) -> Result<Duration, StoreError> {
    let Some(wait) = webhook_next_due(pool).await? else { return Ok(MAX_PAUSE) };
    if !wait.is_zero() {
        return Ok(wait.min(MAX_PAUSE));
    }
    let mut transaction = pool.begin().await.doing("begin to update alarms")?;
    webhook_update_alarms_on_conn(&mut transaction, Timestamp::now(), webhooks.grace).await?;
    transaction.commit().await.doing("commit the update of alarms")?;
    let free = TOTAL.saturating_sub(sending.tasks.len());
    let free = i64::try_from(free).unwrap_or(i64::MAX);
    if free > 0 {
        for claimed in webhook_delivery_claim(pool, &sending.busy(), PER_WEBHOOK, free, LEASE).await? {
            sending.start(Arc::clone(webhooks), pool.clone(), claimed);
        }
    }
    // Messages that are still due belong to a busy receiver, or to another replica.
    Ok(webhook_next_due(pool).await?.map_or(MAX_PAUSE, |wait| wait.clamp(MIN_PAUSE, MAX_PAUSE)))
}

/// Sends one message and stores the outcome.
async fn deliver(webhooks: &Webhooks, pool: &PgPool, claimed: &ClaimedDelivery) -> Result<(), StoreError> {
    let id = claimed.id.to_string();
    let sent = webhooks.attempt(pool, &claimed.project, claimed.webhook, &id, &claimed.body).await?;
    let next = next(&sent, claimed.attempts, rand::random());
    let mut transaction = pool.begin().await.doing("begin to store the outcome of a webhook message")?;
    if !webhook_delivery_finish_on_conn(&mut transaction, claimed, &sent.attempt, next).await? {
        tracing::warn!(
            delivery = %claimed.id,
            "lost the claim on a webhook message while sending it: sending took too long, the webhook was \
             disabled or deleted, or the message was resent; the result is not stored, and the message may \
             be sent twice"
        );
        return Ok(());
    }
    if sent.gone {
        let because = "the receiver returned 410 Gone";
        webhook_disable_on_conn(&mut transaction, &claimed.project, claimed.webhook, because).await?;
        webhook_delivery_give_up_on_conn(&mut transaction, &claimed.project, claimed.webhook, because)
            .await?;
        tracing::warn!(webhook = %claimed.webhook, because, "disabled a webhook");
    }
    transaction.commit().await.doing("store the outcome of a webhook message")?;
    let Attempt { status, error, millis, .. } = &sent.attempt;
    let delivery = claimed.id;
    match next {
        DeliveryOutcome::Delivered => {
            tracing::debug!(%delivery, status, millis, "delivered a webhook message");
        }
        DeliveryOutcome::Retry(wait) => {
            tracing::info!(%delivery, status, error, seconds = wait.as_secs(), "failed to deliver a webhook message; will retry");
        }
        DeliveryOutcome::GiveUp => {
            tracing::warn!(%delivery, status, error, "failed to deliver a webhook message; giving up");
        }
    }
    Ok(())
}

fn next(sent: &SendOutcome, attempts: u32, random: f64) -> DeliveryOutcome {
    if sent.attempt.delivered {
        return DeliveryOutcome::Delivered;
    }
    if sent.gone {
        return DeliveryOutcome::GiveUp;
    }
    backoff(attempts, random, sent.retry_after).map_or(DeliveryOutcome::GiveUp, DeliveryOutcome::Retry)
}

/// The messages that this replica is sending.
#[derive(Default)]
struct Sending {
    tasks: JoinSet<()>,
    webhook_of_task: HashMap<tokio::task::Id, WebhookId>,
}

impl Sending {
    fn start(&mut self, webhooks: Arc<Webhooks>, pool: PgPool, claimed: ClaimedDelivery) {
        let webhook = claimed.webhook;
        let task = self.tasks.spawn(async move {
            if let Err(error) = deliver(&webhooks, &pool, &claimed).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, delivery = %claimed.id, "failed to process a webhook message; will retry");
            }
        });
        self.webhook_of_task.insert(task.id(), webhook);
    }

    fn busy(&self) -> Vec<WebhookId> {
        self.webhook_of_task.values().copied().collect()
    }

    /// Waits until one send ends; forever if there is none.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => std::future::pending().await,
        };
        self.webhook_of_task.remove(&id);
    }

    async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
