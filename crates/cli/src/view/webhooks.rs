//! Webhooks, their messages, and the result of a test.

use brokkr_api::webhooks::{Attempt, Delivery, DeliveryState, Webhook, WebhookFilter};

use super::agents::expiry;
use super::table::{BAD, CAREFUL, GOOD, Table, UNDER_WAY, painted};
use super::text::{age, clean, fields, or_dash, when};
use super::{Listed, RenderOptions, Show};

impl Listed for Webhook {
    const NONE: &'static str = "no webhooks; create one with `brokkr webhook create NAME --url URL`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("WEBHOOK", |webhook| &webhook.name)
            .plain("STATE", |webhook| {
                if webhook.enabled { painted("enabled", GOOD) } else { painted("disabled", CAREFUL) }
            })
            .plain("AGE", |webhook| age(webhook.created_at, now))
            .plain("FORMAT", |webhook| webhook.format)
            .sentence("URL", |webhook| &webhook.url)
            .sentence("FILTER", |webhook| filter(&webhook.filter))
            .wide("ID", |webhook| webhook.id)
    }

    fn name(&self) -> String {
        format!("webhook/{}", self.name)
    }
}

impl Show for Webhook {
    fn text(&self, options: &RenderOptions) -> String {
        let state = match (&self.disabled_because, self.enabled) {
            (_, true) => "enabled".to_owned(),
            (Some(why), false) => format!("disabled: {why}"),
            (None, false) => "disabled".to_owned(),
        };
        fields([
            ("name", self.name.to_string()),
            ("id", self.id.to_string()),
            ("state", state),
            ("url", self.url.clone()),
            ("format", self.format.to_string()),
            ("filter", filter(&self.filter)),
            ("created", when(self.created_at, options.now)),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

fn filter(filter: &WebhookFilter) -> String {
    let events: Vec<String> = filter.events.iter().map(ToString::to_string).collect();
    let mut parts = Vec::new();
    for (what, names) in [("events", &events), ("stacks", &filter.stacks), ("agents", &filter.agents)] {
        if !names.is_empty() {
            parts.push(format!("{what} {}", names.join(",")));
        }
    }
    parts.extend(filter.stack_selector.as_ref().map(|selector| format!("stacks with {selector}")));
    parts.extend(filter.agent_selector.as_ref().map(|selector| format!("labels {selector}")));
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}

impl Listed for Delivery {
    const NONE: &'static str = "no messages";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("ID", |delivery| delivery.id)
            .plain("STATE", |delivery| match delivery.state {
                DeliveryState::Delivered => painted(delivery.state, GOOD),
                DeliveryState::Pending => painted(delivery.state, UNDER_WAY),
                DeliveryState::Dead => painted(delivery.state, BAD),
            })
            .plain("EVENT", |delivery| delivery.event)
            .plain("AGE", |delivery| age(delivery.created_at, now))
            .plain("ATTEMPTS", |delivery| delivery.attempts)
            .sentence("LAST", |delivery| or_dash(delivery.last_attempt.as_ref().map(attempt)))
            .wide("NEXT", |delivery| or_dash(delivery.due_at.map(|due| expiry(due, now))))
    }

    fn name(&self) -> String {
        format!("delivery/{}", self.id)
    }
}

/// Returns the status and the duration, the error, or both: `503 in 31 ms: the receiver returned 503`.
pub fn attempt(attempt: &Attempt) -> String {
    let status = attempt.status.map(|status| format!("{status} in {} ms", attempt.millis));
    let error = attempt.error.as_ref().map(clean);
    let parts: Vec<String> = status.into_iter().chain(error).collect();
    if parts.is_empty() { format!("{} ms", attempt.millis) } else { parts.join(": ") }
}

#[cfg(test)]
mod tests {
    use brokkr_api::webhooks::{WebhookEvent, WebhookFormat};

    use super::super::samples::{AGENT, ago, now, rendered};
    use super::super::whole;
    use super::*;

    #[test]
    fn webhooks() {
        let webhook = Webhook {
            id: AGENT.parse().unwrap(),
            project: "shop".into(),
            name: "ops".parse().unwrap(),
            url: "https://hooks.example.com/services/…".into(),
            filter: WebhookFilter {
                events: vec![WebhookEvent::AlertOpened, WebhookEvent::AlertResolved],
                stack_selector: Some("team=payments".parse().unwrap()),
                agent_selector: Some("env=prod".parse().unwrap()),
                ..WebhookFilter::default()
            },
            format: WebhookFormat::Slack,
            enabled: true,
            disabled_because: None,
            created_at: ago(200_000),
        };
        let off = Webhook {
            enabled: false,
            disabled_because: Some("nothing arrived for 3 days".into()),
            filter: WebhookFilter::default(),
            ..webhook.clone()
        };
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            rendered(&whole(vec![webhook, off.clone()])),
            rendered(&off)
        ));
    }

    #[test]
    fn deliveries() {
        let good =
            Attempt { delivered: true, status: Some(200), error: None, millis: 31, answer: String::new() };
        let bad = Attempt {
            delivered: false,
            status: Some(503),
            error: Some("the receiver returned 503".into()),
            ..good.clone()
        };
        let delivery = Delivery {
            id: AGENT.parse().unwrap(),
            webhook_id: AGENT.parse().unwrap(),
            event: WebhookEvent::Healthy,
            state: DeliveryState::Delivered,
            created_at: ago(60),
            attempts: 1,
            due_at: None,
            last_attempt_at: Some(ago(60)),
            last_attempt: Some(good),
            body: serde_json::Value::Null,
        };
        let waiting = Delivery {
            state: DeliveryState::Pending,
            attempts: 3,
            due_at: Some(now() + jiff::SignedDuration::from_secs(600)),
            last_attempt: Some(bad),
            ..delivery.clone()
        };
        insta::assert_snapshot!(rendered(&whole(vec![delivery, waiting])));
    }
}
