//! Webhooks, by name or id, and their messages.

use brokkr_api::DeliveryId;
use brokkr_api::page::Page;
use brokkr_api::webhooks::{
    Attempt, CreateWebhook, Delivery, DeliveryState, RotateSecret, Webhook, WebhookPatch, WebhookWithSecret,
};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    pub async fn webhooks(&self, page: &PageQuery) -> Result<Page<Webhook>, ClientError> {
        self.send(self.read(&["webhooks"]).query(&page.pairs())).await?.json()
    }

    pub async fn webhooks_all(&self) -> Result<Vec<Webhook>, ClientError> {
        self.read_on(|page| async move { self.webhooks(&page).await }).await
    }

    pub async fn webhook(&self, webhook: &str) -> Result<Webhook, ClientError> {
        self.send(self.read(&["webhooks", webhook])).await?.json()
    }

    /// Returns the secret, which is not shown again.
    pub async fn create_webhook(&self, wanted: &CreateWebhook) -> Result<WebhookWithSecret, ClientError> {
        self.send(self.write(Method::POST, &["webhooks"]).json(wanted)?).await?.json()
    }

    pub async fn patch_webhook(&self, webhook: &str, patch: &WebhookPatch) -> Result<Webhook, ClientError> {
        self.send(self.write(Method::PATCH, &["webhooks", webhook]).json(patch)?).await?.json()
    }

    pub async fn delete_webhook(&self, webhook: &str) -> Result<(), ClientError> {
        self.send(self.write(Method::DELETE, &["webhooks", webhook])).await.map(|_| ())
    }

    /// Returns the new secret, which is not shown again.
    pub async fn rotate_webhook_secret(
        &self,
        webhook: &str,
        wanted: &RotateSecret,
    ) -> Result<WebhookWithSecret, ClientError> {
        let path = ["webhooks", webhook, "rotate-secret"];
        self.send(self.write(Method::POST, &path).json(wanted)?).await?.json()
    }

    /// Sends a signed ping once.
    pub async fn test_webhook(&self, webhook: &str) -> Result<Attempt, ClientError> {
        self.send(self.write(Method::POST, &["webhooks", webhook, "test"])).await?.json()
    }

    /// Messages to a webhook, newest first.
    pub async fn deliveries(
        &self,
        webhook: &str,
        state: Option<DeliveryState>,
        page: &PageQuery,
    ) -> Result<Page<Delivery>, ClientError> {
        let state = state.map(|state| ("state", state.to_string()));
        let pairs: Vec<_> = state.into_iter().chain(page.pairs()).collect();
        self.send(self.read(&["webhooks", webhook, "deliveries"]).query(&pairs)).await?.json()
    }

    pub async fn resend_delivery(&self, webhook: &str, delivery: DeliveryId) -> Result<(), ClientError> {
        let path = ["webhooks", webhook, "deliveries", &delivery.to_string(), "resend"];
        self.send(self.write(Method::POST, &path)).await.map(|_| ())
    }
}
