//! Sends what is due to webhooks.
//!
//! Waits for: a commit of this replica that wrote a message, the end of a send, the time when something is due, and ten
//! seconds at most, because other replicas write, too. Each round looks at alarms, claims what is due and sends it, each
//! in its own task and outside any transaction; a message whose sender died is due again when its lease ends, with the
//! same `webhook-id`.

pub mod lookup;
pub mod send;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::WebhookId;
use brokkr_api::webhooks::Attempt;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::webhooks::WebhookArgs;
use crate::domain::webhooks::backoff::backoff;
use crate::domain::webhooks::guard::Guard;
use crate::domain::webhooks::signature::WebhookSecret;
use crate::domain::webhooks::vault::{Place, Vault, VaultError};
use crate::store::webhook_deliveries::{
    Claimed, Next, webhook_delivery_claim, webhook_delivery_delete_old, webhook_delivery_finish_on_conn,
    webhook_delivery_give_up_on_conn,
};
use crate::store::webhook_notices::{webhook_next_due, webhook_notify_alarms_on_conn};
use crate::store::webhooks::{WebhookRef, webhook_disable_on_conn, webhook_fetch, webhook_secrets_fetch};
use crate::store::{Doing as _, StoreError};
use lookup::SystemLookup;
use send::{Message, SendError, Sender, Sent, TIMEOUT};

const SLOW: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Longer than any attempt can take.
const LEASE: Duration = TIMEOUT.saturating_add(Duration::from_secs(15));
/// Messages to one webhook that this replica sends at a time.
const EACH: i64 = 4;
/// Messages in all that this replica sends at a time.
const TOTAL: usize = 256;
const TIDY_EVERY: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const DELIVERED_FOR: Duration = DAY.saturating_mul(7);
const DEAD_FOR: Duration = DAY.saturating_mul(30);
/// How long sends may still take when the replica stops; another one repeats what is cut off.
const STOP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum WebhookSetupError {
    #[error(transparent)]
    Key(#[from] VaultError),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// What handlers and the task share.
#[derive(Debug)]
pub struct Webhooks {
    pub guard: Guard,
    pub vault: Option<Vault>,
    pub grace: Duration,
    sender: Sender,
    bell: Notify,
}

impl Webhooks {
    pub fn new(args: &WebhookArgs) -> Result<Self, WebhookSetupError> {
        let guard = Guard {
            networks: args.webhook_networks.clone(),
            plain_http: args.webhook_http,
            any_port: args.webhook_any_port,
        };
        let key = args.secret_key.as_ref();
        Ok(Self {
            vault: key.map(|key| Vault::read(key.expose_secret())).transpose()?,
            grace: args.webhook_grace,
            sender: Sender::new(guard.clone(), Arc::new(SystemLookup), args.webhook_ca.as_deref())?,
            guard,
            bell: Notify::new(),
        })
    }

    /// Tells the task that a message was written.
    pub fn poke(&self) {
        self.bell.notify_one();
    }

    /// One attempt to send a message to a webhook. What is wrong on our side counts as an attempt, too, so that it shows.
    pub async fn attempt(
        &self,
        pool: &PgPool,
        project: &str,
        webhook: WebhookId,
        id: &str,
        body: &[u8],
    ) -> Result<Sent, StoreError> {
        let Some(found) = webhook_fetch(pool, project, &WebhookRef::Id(webhook)).await? else {
            return Ok(Sent::failed("the webhook was deleted"));
        };
        let sealed = webhook_secrets_fetch(pool, project, webhook).await?;
        let Some(vault) = &self.vault else {
            return Ok(Sent::failed("the broker has no secret key: set BROKKR_SECRET_KEY"));
        };
        let place = Place { project, webhook };
        let secrets: Result<Vec<WebhookSecret>, VaultError> = sealed
            .iter()
            .map(|sealed| {
                let clear = vault.open(place, sealed)?;
                WebhookSecret::from_bytes(&clear).map_err(|_| VaultError::Damaged)
            })
            .collect();
        match secrets {
            Err(error) => Ok(Sent::failed(error.to_string())),
            Ok(secrets) if secrets.is_empty() => {
                Ok(Sent::failed("the webhook has no valid secret: rotate it"))
            }
            Ok(secrets) => {
                let message = Message { url: &found.url, id, body, secrets: &secrets };
                Ok(self.sender.send(&message, Timestamp::now()).await)
            }
        }
    }

    /// Sends until told to stop.
    pub async fn run(self: Arc<Self>, pool: PgPool, stop: CancellationToken) {
        let mut sending = Sending::default();
        let mut tidied = tokio::time::Instant::now();
        let mut failing = false;
        loop {
            let pause = match self.round(&pool, &mut sending).await {
                Ok(pause) => {
                    failing = false;
                    pause
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "webhooks wait for the database");
                    }
                    AFTER_FAILURE
                }
            };
            if tidied.elapsed() >= TIDY_EVERY {
                tidied = tokio::time::Instant::now();
                if let Err(error) = webhook_delivery_delete_old(&pool, DELIVERED_FOR, DEAD_FOR).await {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "old messages to webhooks stay for now");
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.bell.notified() => {}
                () = sending.one_ended() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        if tokio::time::timeout(STOP_WITHIN, sending.all_ended()).await.is_err() {
            tracing::info!("messages to webhooks that were being sent are sent again later");
        }
    }

    /// Does what is due, and answers how long nothing more will be.
    async fn round(self: &Arc<Self>, pool: &PgPool, sending: &mut Sending) -> Result<Duration, StoreError> {
        let Some(wait) = webhook_next_due(pool).await? else { return Ok(SLOW) };
        if !wait.is_zero() {
            return Ok(wait.min(SLOW));
        }
        let mut transaction = pool.begin().await.doing("begin to look for troubles that last")?;
        webhook_notify_alarms_on_conn(&mut transaction, Timestamp::now(), self.grace).await?;
        transaction.commit().await.doing("end looking for troubles that last")?;
        let room = TOTAL.saturating_sub(sending.tasks.len());
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        if room > 0 {
            for claimed in webhook_delivery_claim(pool, &sending.busy(), EACH, room, LEASE).await? {
                sending.start(Arc::clone(self), pool.clone(), claimed);
            }
        }
        // What is still due belongs to a receiver that is busy, or to another replica's round.
        Ok(webhook_next_due(pool).await?.map_or(SLOW, |wait| wait.clamp(AT_ONCE, SLOW)))
    }

    /// Sends one message, and stores what came of it.
    async fn deliver(&self, pool: &PgPool, claimed: &Claimed) -> Result<(), StoreError> {
        let id = claimed.id.to_string();
        let sent = self.attempt(pool, &claimed.project, claimed.webhook, &id, &claimed.body).await?;
        let next = next(&sent, claimed.attempts, rand::random());
        let mut transaction = pool.begin().await.doing("begin to store what came of a message")?;
        if !webhook_delivery_finish_on_conn(&mut transaction, claimed, &sent.attempt, next).await? {
            tracing::warn!(delivery = %claimed.id, "a message to a webhook took longer than its lease");
            return Ok(());
        }
        if sent.gone {
            let because = "the receiver answered 410: it wants no more messages";
            webhook_disable_on_conn(&mut transaction, &claimed.project, claimed.webhook, because).await?;
            webhook_delivery_give_up_on_conn(&mut transaction, &claimed.project, claimed.webhook, because)
                .await?;
            tracing::warn!(webhook = %claimed.webhook, because, "a webhook is switched off");
        }
        transaction.commit().await.doing("store what came of a message")?;
        let Attempt { status, error, millis, .. } = &sent.attempt;
        let delivery = claimed.id;
        match next {
            Next::Done => tracing::debug!(%delivery, status, millis, "a message to a webhook is delivered"),
            Next::Again(wait) => {
                tracing::info!(%delivery, status, error, seconds = wait.as_secs(), "a message to a webhook waits");
            }
            Next::GiveUp => {
                tracing::warn!(%delivery, status, error, "a message to a webhook is a dead letter");
            }
        }
        Ok(())
    }
}

fn next(sent: &Sent, attempts: u32, chance: f64) -> Next {
    if sent.attempt.delivered {
        return Next::Done;
    }
    if sent.gone {
        return Next::GiveUp;
    }
    backoff(attempts, chance, sent.retry_after).map_or(Next::GiveUp, Next::Again)
}

/// What this replica is sending.
#[derive(Default)]
struct Sending {
    tasks: JoinSet<()>,
    of: HashMap<tokio::task::Id, WebhookId>,
}

impl Sending {
    fn start(&mut self, webhooks: Arc<Webhooks>, pool: PgPool, claimed: Claimed) {
        let webhook = claimed.webhook;
        let task = self.tasks.spawn(async move {
            if let Err(error) = webhooks.deliver(&pool, &claimed).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, delivery = %claimed.id, "a message to a webhook will be sent again");
            }
        });
        self.of.insert(task.id(), webhook);
    }

    fn busy(&self) -> Vec<WebhookId> {
        self.of.values().copied().collect()
    }

    /// Waits for the end of one; for ever if there is none.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => std::future::pending().await,
        };
        self.of.remove(&id);
    }

    async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
