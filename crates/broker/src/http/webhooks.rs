//! Webhooks of a project. Owners change them; viewers see them, without what is secret.

pub mod create;
pub mod delete;
pub mod deliveries;
pub mod get;
pub mod list;
pub mod patch;
pub mod resend;
pub mod rotate_secret;
pub mod test;

use brokkr_api::ErrorCode;
use brokkr_api::tokens::Role;
use brokkr_api::webhooks::{Webhook, WebhookFilter};
use url::Url;

use crate::access::Caller;
use crate::state::Broker;
use crate::domain::webhooks::filter;
use crate::domain::webhooks::vault::Vault;
use crate::error::ApiError;
use crate::store::webhooks::{WebhookRef, webhook_fetch};

/// The path of an address often is a secret: whoever may not change a webhook sees only where it goes.
fn shown(caller: &Caller, mut webhook: Webhook) -> Result<Webhook, ApiError> {
    if !caller.token()?.role.includes(Role::Owner) {
        let origin = Url::parse(&webhook.url).map(|url| url.origin().ascii_serialization());
        webhook.url = origin.unwrap_or_default() + "/…";
    }
    Ok(webhook)
}

async fn find(broker: &Broker, caller: &Caller, named: &str) -> Result<Webhook, ApiError> {
    let found = webhook_fetch(&broker.pool, caller.project(), &WebhookRef::read(named)).await?;
    found.ok_or_else(|| ApiError::not_found("webhook"))
}

fn check_url(broker: &Broker, url: &str) -> Result<(), ApiError> {
    let checked = broker.webhooks.policy.url(url).map(|_| ());
    checked.map_err(|refusal| ApiError::new(ErrorCode::BRK2016, refusal.to_string()))
}

fn check_filter(filter: &WebhookFilter) -> Result<(), ApiError> {
    filter::check(filter).map_err(|error| ApiError::unreadable(error.to_string()))
}

fn vault(broker: &Broker) -> Result<&Vault, ApiError> {
    let missing = "the broker was started without a secret key, so the secret of a webhook cannot be kept";
    broker.webhooks.vault.as_ref().ok_or_else(|| ApiError::new(ErrorCode::BRK2017, missing))
}

fn cannot_seal(error: crate::domain::webhooks::vault::VaultError) -> ApiError {
    ApiError::new(ErrorCode::BRK9001, "the secret cannot be sealed").because(error)
}
