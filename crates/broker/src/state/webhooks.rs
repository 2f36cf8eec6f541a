//! Sends messages to webhooks, for handlers (a test message) and for `tasks::webhooks`.

pub mod resolver;
pub mod send;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::WebhookId;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::domain::alerts::group::Timing;
use crate::domain::webhooks::egress_policy::EgressPolicy;
use crate::domain::webhooks::format::addressed;
use crate::domain::webhooks::signature::WebhookSecret;
use crate::domain::webhooks::vault::{SecretOwner, Vault, VaultError};
use crate::store::StoreError;
use crate::store::webhooks::{WebhookRef, webhook_fetch, webhook_secrets_fetch};
use resolver::SystemResolver;
use send::{Message, SendError, SendOutcome, Sender};

/// The configuration of webhooks.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub policy: EgressPolicy,
    pub secret_key: Option<SecretString>,
    /// Additional certificate authorities.
    pub ca: Option<PathBuf>,
    /// How long a problem of an agent has to last before it counts in alerts, and how long it has to be over before an alert is.
    pub grace: Duration,
    /// How long an alert waits for further agents before its first message.
    pub alert_gather: Duration,
    /// The time between two messages of an alert.
    pub alert_interval: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookSetupError {
    #[error(transparent)]
    Key(#[from] VaultError),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Sends messages to webhooks.
#[derive(Debug)]
pub struct Webhooks {
    pub policy: EgressPolicy,
    pub vault: Option<Vault>,
    pub grace: Duration,
    pub alert_timing: Timing,
    sender: Sender,
    written: Notify,
}

impl Webhooks {
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookSetupError> {
        let WebhookOptions { policy, secret_key, ca, grace, alert_gather, alert_interval } = options;
        let key = secret_key.as_ref();
        Ok(Self {
            vault: key.map(|key| Vault::read(key.expose_secret())).transpose()?,
            grace,
            alert_timing: Timing { gather: alert_gather, settle: grace, interval: alert_interval },
            sender: Sender::new(policy.clone(), Arc::new(SystemResolver), ca.as_deref())?,
            policy,
            written: Notify::new(),
        })
    }

    /// Announces that a message was written.
    pub fn notify(&self) {
        self.written.notify_one();
    }

    /// Resolves after a message was written here.
    pub async fn notified(&self) {
        self.written.notified().await;
    }

    /// Makes one attempt to send a message to a webhook. A failure on the broker's side counts as an attempt, so that it
    /// is visible.
    pub async fn attempt(
        &self,
        pool: &PgPool,
        project: &str,
        webhook: WebhookId,
        id: &str,
        body: &[u8],
    ) -> Result<SendOutcome, StoreError> {
        let Some(found) = webhook_fetch(pool, project, &WebhookRef::Id(webhook)).await? else {
            return Ok(SendOutcome::failed("the webhook was deleted"));
        };
        let sealed = webhook_secrets_fetch(pool, project, webhook).await?;
        let Some(vault) = &self.vault else {
            return Ok(SendOutcome::failed("the broker has no secret key; set BROKKR_SECRET_KEY"));
        };
        let owner = SecretOwner { project, webhook };
        let secrets: Result<Vec<WebhookSecret>, VaultError> = sealed
            .iter()
            .map(|sealed| {
                let clear = vault.open(owner, sealed)?;
                WebhookSecret::from_bytes(&clear).map_err(|_| VaultError::Damaged)
            })
            .collect();
        match secrets {
            Err(error) => Ok(SendOutcome::failed(error.to_string())),
            Ok(secrets) if secrets.is_empty() => {
                Ok(SendOutcome::failed("the webhook has no valid secret; rotate it"))
            }
            Ok(secrets) => {
                let body = addressed(found.format, &found.url, body);
                let message = Message { url: &found.url, id, body: &body, secrets: &secrets };
                Ok(self.sender.send(&message, Timestamp::now()).await)
            }
        }
    }
}
