//! `brokkr webhook …`

use std::time::Duration;

use brokkr_api::webhooks::{DeliveryState, WebhookEvent, WebhookFilter};
use brokkr_api::{DeliveryId, Name, Selector};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// The webhooks of the project
    List,
    /// One webhook
    Show(OneWebhook),
    Create(CreateHook),
    Set(SetHook),
    /// Let a webhook get messages again
    Enable(OneWebhook),
    /// Stop messages to a webhook; what was waiting becomes dead letters
    Disable(OneWebhook),
    /// Delete a webhook
    Delete {
        /// By name or id
        #[arg(value_name = "WEBHOOK")]
        webhook: Name,
        /// Do not ask (for scripts)
        #[arg(short, long)]
        yes: bool,
    },
    RotateSecret(RotateHook),
    /// Send a signed ping now, and tell what came of it
    Test(OneWebhook),
    Deliveries(Deliveries),
    /// Send a message again, from the first attempt on
    Resend {
        /// By name or id
        #[arg(value_name = "WEBHOOK")]
        webhook: Name,
        /// As `brokkr webhook deliveries` shows it
        #[arg(value_name = "ID")]
        delivery: DeliveryId,
    },
}

#[derive(Debug, clap::Args)]
pub struct OneWebhook {
    /// By name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
}

/// Make a webhook
///
/// The secret alone is printed to stdout, once: receivers verify signatures with it (docs/webhooks.md).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook create ops --url - --event alert.failure < address > secret")]
pub struct CreateHook {
    /// What it is called
    pub name: Name,
    /// Where messages go, https; - reads it from stdin, because other users of the machine can see flags
    #[arg(long, value_name = "URL")]
    pub url: String,
    #[command(flatten)]
    pub filter: Filter,
}

/// Change a webhook; what is not given stays
///
/// A filter that is given replaces the whole filter that was there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook set ops --event alert.failure --event alert.failure_over")]
pub struct SetHook {
    /// By name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// Where messages go, https; - reads it from stdin
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    #[command(flatten)]
    pub filter: Filter,
}

/// Which messages.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// Only events of this kind; can be repeated. Without it: all but those that alerts tell when they last
    #[arg(long = "event", value_name = "EVENT", value_parser = event())]
    pub events: Vec<WebhookEvent>,
    /// Only of this stack, by name or id; can be repeated
    #[arg(long = "stack", value_name = "STACK", value_parser = super::stack)]
    pub stacks: Vec<Name>,
    /// Only of this agent, by name or id; can be repeated
    #[arg(long = "agent", value_name = "AGENT", value_parser = super::agent)]
    pub agents: Vec<Name>,
    /// Only of agents whose labels match
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.stacks.is_empty() && self.agents.is_empty() && self.selector.is_none()
    }

    pub fn wanted(&self) -> WebhookFilter {
        WebhookFilter {
            events: self.events.clone(),
            stacks: self.stacks.iter().map(ToString::to_string).collect(),
            agents: self.agents.iter().map(ToString::to_string).collect(),
            agent_selector: self.selector.clone(),
        }
    }
}

fn event() -> impl clap::builder::TypedValueParser<Value = WebhookEvent> {
    let events = [
        "ping",
        "deployment_object.submitted",
        "stack.deleted",
        "stack.applied",
        "stack.healthy",
        "stack.degraded",
        "stack.failed",
        "stack.repaired",
        "stack.blocked",
        "stack.removed",
        "alert.failure",
        "alert.failure_over",
        "alert.drift",
        "alert.drift_over",
    ];
    PossibleValuesParser::new(events).try_map(|text| text.parse::<WebhookEvent>())
}

/// Make a new secret
///
/// The secret alone is printed to stdout, once. Until the overlap is over, messages are signed with both.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook rotate-secret ops --overlap 2d > secret")]
pub struct RotateHook {
    /// By name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// For how long messages are signed with the old secret, too; a week at most
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = super::duration)]
    pub overlap: Duration,
}

/// Messages to a webhook, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr webhook deliveries ops --state dead")]
pub struct Deliveries {
    /// By name or id
    #[arg(value_name = "WEBHOOK")]
    pub webhook: Name,
    /// Only those that are so
    #[arg(long, value_name = "STATE", value_parser = delivery_state())]
    pub state: Option<DeliveryState>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
}

fn delivery_state() -> impl clap::builder::TypedValueParser<Value = DeliveryState> {
    PossibleValuesParser::new(["pending", "delivered", "dead"]).try_map(|text| text.parse::<DeliveryState>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_can_be_named() {
        let command = clap::Command::new("x");
        let known = event().possible_values().unwrap().count();
        for name in event().possible_values().unwrap() {
            let name = std::ffi::OsString::from(name.get_name());
            event().parse_ref(&command, None, &name).unwrap();
        }
        assert_eq!(known, 14, "the broker has as many kinds of events");
    }
}
