//! Webhooks, by name or id, and their messages.

use brokkr_api::DeliveryId;
use brokkr_api::page::Page;
use brokkr_api::webhooks::{
    Attempt, CreateWebhook, Delivery, DeliveryState, RotateSecret, Webhook, WebhookPatch, WebhookWithSecret,
};
use http::Method;

use crate::page::given;
use crate::{Client, PageQuery, Result};

impl Client {
    pub async fn webhooks_all(&self) -> Result<Vec<Webhook>> {
        self.all(&["webhooks"], &[]).await
    }

    pub async fn webhook(&self, webhook: &str) -> Result<Webhook> {
        self.send(self.read(&["webhooks", webhook])).await?.json()
    }

    /// Returns the secret, which is not shown again.
    pub async fn create_webhook(&self, wanted: &CreateWebhook) -> Result<WebhookWithSecret> {
        self.send(self.write(Method::POST, &["webhooks"]).json(wanted)?).await?.json()
    }

    pub async fn patch_webhook(&self, webhook: &str, patch: &WebhookPatch) -> Result<Webhook> {
        self.send(self.write(Method::PATCH, &["webhooks", webhook]).json(patch)?).await?.json()
    }

    pub async fn delete_webhook(&self, webhook: &str) -> Result<()> {
        self.send(self.write(Method::DELETE, &["webhooks", webhook])).await.map(|_| ())
    }

    /// Returns the new secret, which is not shown again.
    pub async fn rotate_webhook_secret(
        &self,
        webhook: &str,
        wanted: &RotateSecret,
    ) -> Result<WebhookWithSecret> {
        let path = ["webhooks", webhook, "rotate-secret"];
        self.send(self.write(Method::POST, &path).json(wanted)?).await?.json()
    }

    /// Sends a signed ping once.
    pub async fn test_webhook(&self, webhook: &str) -> Result<Attempt> {
        self.send(self.write(Method::POST, &["webhooks", webhook, "test"])).await?.json()
    }

    /// Reads one page of the messages to a webhook, newest first.
    pub async fn deliveries(
        &self,
        webhook: &str,
        state: Option<DeliveryState>,
        page: &PageQuery,
    ) -> Result<Page<Delivery>> {
        let state = given([state.map(|state| ("state", state.to_string()))]);
        self.page(&["webhooks", webhook, "deliveries"], &state, page).await
    }

    pub async fn resend_delivery(&self, webhook: &str, delivery: DeliveryId) -> Result<()> {
        let path = ["webhooks", webhook, "deliveries", &delivery.to_string(), "resend"];
        self.send(self.write(Method::POST, &path)).await.map(|_| ())
    }
}
