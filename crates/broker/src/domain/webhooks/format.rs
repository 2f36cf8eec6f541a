//! Messages in the formats of their receivers: pure functions from a message to a body.
//!
//! Names and fixed sentences are plain by construction. The text of an agent is not: each format puts it where the receiver
//! interprets nothing in it.

mod pagerduty;
mod slack;
mod teams;
#[cfg(test)]
mod tests;

use brokkr_api::webhooks::{WebhookEvent, WebhookFilter, WebhookFormat};
use serde_json::{Value, json};
use url::Url;

use super::happening::Happening;
use crate::domain::alerts::message::AlertMessage;

use pagerduty::is_integration_key;

/// A message before it has a format.
#[derive(Clone, Copy, Debug)]
pub enum WebhookMessage<'a> {
    Happening(&'a Happening),
    Alert(&'a AlertMessage),
}

/// Why a webhook cannot have its format.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFormat {
    #[error(
        "the URL of a webhook with the format pagerduty ends in # and the integration key of 32 letters and digits: \
         https://events.pagerduty.com/v2/enqueue#KEY"
    )]
    NoIntegrationKey,
    #[error("a webhook with the format pagerduty sends only alert.opened, alert.updated and alert.resolved")]
    OnlyAlerts,
}

/// Checks that a webhook has what its format needs.
pub fn check(format: WebhookFormat, url: &str, filter: &WebhookFilter) -> Result<(), BadFormat> {
    if format != WebhookFormat::PagerDuty {
        return Ok(());
    }
    if !integration_key(url).is_some_and(|key| is_integration_key(&key)) {
        return Err(BadFormat::NoIntegrationKey);
    }
    if filter.events.iter().all(|event| event.is_alert()) { Ok(()) } else { Err(BadFormat::OnlyAlerts) }
}

impl WebhookMessage<'_> {
    #[must_use]
    pub fn event(&self) -> WebhookEvent {
        match self {
            Self::Happening(happening) => happening.event,
            Self::Alert(alert) => alert.event(),
        }
    }

    /// Returns the body of the message.
    #[must_use]
    pub fn body(&self, format: WebhookFormat, project: &str) -> Vec<u8> {
        let body = match (format, self) {
            (WebhookFormat::Standard, Self::Happening(happening)) => happening.value(project),
            (WebhookFormat::Standard, Self::Alert(alert)) => {
                json!({ "type": alert.event(), "timestamp": alert.at, "data": alert.data() })
            }
            (WebhookFormat::Slack, Self::Happening(happening)) => slack::line(&happening.title(project)),
            (WebhookFormat::Slack, Self::Alert(alert)) => slack::alert(alert),
            (WebhookFormat::Teams, Self::Happening(happening)) => teams::line(&happening.title(project)),
            (WebhookFormat::Teams, Self::Alert(alert)) => teams::alert(alert),
            (WebhookFormat::PagerDuty, Self::Happening(_)) => pagerduty::test(project),
            (WebhookFormat::PagerDuty, Self::Alert(alert)) => pagerduty::alert(alert),
        };
        body.to_string().into_bytes()
    }
}

/// Returns the body as it is sent. A stored body never contains the key of the receiver.
#[must_use]
pub fn addressed(format: WebhookFormat, url: &str, body: &[u8]) -> Vec<u8> {
    let (WebhookFormat::PagerDuty, Some(key)) = (format, integration_key(url)) else { return body.to_vec() };
    let Ok(mut event) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    event["routing_key"] = key.into();
    event.to_string().into_bytes()
}

fn integration_key(url: &str) -> Option<String> {
    Url::parse(url).ok()?.fragment().map(str::to_owned)
}

/// Shortens text to a number of characters.
fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}
