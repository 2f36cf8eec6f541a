//! `brokkr webhook …`

use std::time::Duration;

use brokkr_api::webhooks::{DeliveryState, WebhookEvent, WebhookFilter, WebhookFormat};
use brokkr_api::{DeliveryId, Name, Selector};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// List the webhooks of the project
    List,
    /// Show one webhook
    Show(OneWebhook),
    Create(CreateWebhookArgs),
    Set(SetWebhook),
    /// Enable a webhook
    Enable(OneWebhook),
    /// Disable a webhook; pending messages become dead letters
    Disable(OneWebhook),
    /// Delete a webhook
    Delete {
        /// Name or id
        #[arg(value_name = "WEBHOOK")]
        webhook: Name,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
    RotateSecret(RotateWebhookSecret),
    /// Send a signed ping and show the result
    Test(OneWebhook),
    Deliveries(Deliveries),
    /// Resend a message; its attempts start over
    Resend {
        /// Name or id
        #[arg(value_name = "WEBHOOK")]
        webhook: Name,
        /// Id, as shown by `brokkr webhook deliveries`
        #[arg(value_name = "ID")]
        delivery: DeliveryId,
    },
}

#[derive(Debug, clap::Args)]
pub struct OneWebhook {
    /// Name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
}

/// Create a webhook
///
/// Only the secret is printed to stdout; it cannot be shown again. Receivers verify signatures with it (docs/webhooks.md).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr webhook create payments --url - --format slack --stack-selector team=payments < address > secret"
)]
pub struct CreateWebhookArgs {
    /// Name
    pub name: Name,
    /// HTTPS URL of the receiver; use - to read it from stdin, because other users of the machine can see command lines
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Format of the messages
    #[arg(long, value_name = "FORMAT", value_parser = format(), default_value = "standard")]
    pub format: WebhookFormat,
    #[command(flatten)]
    pub filter: Filter,
}

/// Change the URL, the format or the filter of a webhook
///
/// A new filter replaces the old filter completely.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook set ops --event alert.opened --event alert.resolved")]
pub struct SetWebhook {
    /// Name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// HTTPS URL of the receiver; use - to read it from stdin
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Format of the messages
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    pub format: Option<WebhookFormat>,
    #[command(flatten)]
    pub filter: Filter,
}

/// Selects messages.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// Send only this kind of event; can be repeated [default: all except stack.degraded, stack.failed,
    /// stack.repaired and stack.blocked, which alerts cover; only alerts with another format than standard]
    #[arg(long = "event", value_name = "EVENT", value_parser = event())]
    pub events: Vec<WebhookEvent>,
    /// Send only events of this stack, by name or id; can be repeated
    #[arg(long = "stack", value_name = "STACK", value_parser = super::stack)]
    pub stacks: Vec<Name>,
    /// Send only events of stacks with matching labels, such as team=payments
    #[arg(long, value_name = "SELECTOR")]
    pub stack_selector: Option<Selector>,
    /// Send only events of this agent, by name or id; can be repeated
    #[arg(long = "agent", value_name = "AGENT", value_parser = super::agent)]
    pub agents: Vec<Name>,
    /// Send only events of agents with matching labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.stacks.is_empty()
            && self.stack_selector.is_none()
            && self.agents.is_empty()
            && self.selector.is_none()
    }

    pub fn to_api(&self) -> WebhookFilter {
        WebhookFilter {
            events: self.events.clone(),
            stacks: self.stacks.iter().map(ToString::to_string).collect(),
            stack_selector: self.stack_selector.clone(),
            agents: self.agents.iter().map(ToString::to_string).collect(),
            agent_selector: self.selector.clone(),
        }
    }
}

fn format() -> impl clap::builder::TypedValueParser<Value = WebhookFormat> {
    PossibleValuesParser::new(["standard", "slack", "teams", "pagerduty"])
        .try_map(|text| text.parse::<WebhookFormat>())
}

fn event() -> impl clap::builder::TypedValueParser<Value = WebhookEvent> {
    let events = [
        "ping",
        "deployment_object.submitted",
        "stack.deleted",
        "rollout.started",
        "rollout.advanced",
        "rollout.gate_opened",
        "rollout.stopped",
        "rollout.completed",
        "stack.applied",
        "stack.healthy",
        "stack.degraded",
        "stack.failed",
        "stack.repaired",
        "stack.drifted",
        "stack.suspended",
        "stack.resumed",
        "stack.blocked",
        "stack.removed",
        "alert.opened",
        "alert.updated",
        "alert.resolved",
    ];
    PossibleValuesParser::new(events).try_map(|text| text.parse::<WebhookEvent>())
}

/// Replace the secret of a webhook
///
/// Only the new secret is printed to stdout; it cannot be shown again. During the overlap, messages are signed with both
/// secrets.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook rotate-secret ops --overlap 2d > secret")]
pub struct RotateWebhookSecret {
    /// Name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// Keep signing with the old secret for this time, at most 7 days
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = super::duration)]
    pub overlap: Duration,
}

/// List the messages to a webhook, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook deliveries ops --state dead")]
pub struct Deliveries {
    /// Name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// Show only messages in this state
    #[arg(long, value_name = "STATE", value_parser = delivery_state())]
    pub state: Option<DeliveryState>,
    /// Show at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
}

fn delivery_state() -> impl clap::builder::TypedValueParser<Value = DeliveryState> {
    PossibleValuesParser::new(["pending", "delivered", "dead"]).try_map(|text| text.parse::<DeliveryState>())
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    fn names(parser: &impl clap::builder::TypedValueParser) -> Vec<String> {
        parser.possible_values().unwrap().map(|value| value.get_name().to_owned()).collect()
    }

    #[test]
    fn every_event_and_every_format_can_be_named() {
        let all: Vec<String> = WebhookEvent::iter().map(|event| event.to_string()).collect();
        assert_eq!(names(&event()), all);
        let all: Vec<String> = WebhookFormat::iter().map(|format| format.to_string()).collect();
        assert_eq!(names(&format()), all);
    }
}
