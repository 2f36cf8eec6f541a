//! What a message about an alert says. Made of names, numbers and fixed sentences; the one text of an agent is marked as such.

use brokkr_api::SequenceId;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::why::Cause;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::webhooks::happening::NamedStack;
use super::super::why::remedy;
use super::cause::sentence;
use super::group::Notice;

/// Agents that a message names.
pub const EXAMPLES: usize = 5;
/// The longest text of an agent that a message quotes.
const LONGEST_MESSAGE: usize = 500;

/// A group: the agents of a stack with the same cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertSubject {
    pub project: String,
    pub stack: NamedStack,
    pub cause: Cause,
}

/// Some agents of a group, and the report of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    /// At most [`EXAMPLES`], by name.
    pub agents: Vec<String>,
    pub sequence_id: Option<SequenceId>,
    pub reason: Reason,
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMessage {
    pub subject: AlertSubject,
    pub notice: Notice,
    pub at: Timestamp,
    /// Empty if the alert is resolved.
    pub examples: Examples,
}

impl AlertMessage {
    #[must_use]
    pub fn event(&self) -> WebhookEvent {
        match self.notice {
            Notice::Opened(_) => WebhookEvent::AlertOpened,
            Notice::Updated { .. } => WebhookEvent::AlertUpdated,
            Notice::Resolved(_) => WebhookEvent::AlertResolved,
        }
    }

    /// Returns the id of the alert, which all of its messages have.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.alert().id
    }

    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.alert().since
    }

    #[must_use]
    pub fn is_resolved(&self) -> bool {
        matches!(self.notice, Notice::Resolved(_))
    }

    /// Returns the number of agents; of a resolved alert, the largest that was sent.
    #[must_use]
    pub fn agents(&self) -> u32 {
        self.alert().agents
    }

    /// Returns the message in one line.
    #[must_use]
    pub fn title(&self) -> String {
        let (stack, cause) = (&self.subject.stack.name, sentence(self.subject.cause));
        let agents = counted(self.agents());
        match self.notice {
            Notice::Opened(_) => format!("{stack}: {cause} on {agents}"),
            Notice::Updated { before, .. } => format!("{stack}: {cause} on {agents}, up from {before}"),
            Notice::Resolved(_) => {
                format!("{stack}: resolved: {cause} (on {agents} before)")
            }
        }
    }

    /// Returns the named agents in one line.
    #[must_use]
    pub fn examples(&self) -> Option<String> {
        let named = &self.examples.agents;
        let more = usize::try_from(self.agents()).unwrap_or(usize::MAX).saturating_sub(named.len());
        let names = named.join(", ");
        match (named.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(names),
            (false, more) => Some(format!("{names} and {more} more")),
        }
    }

    /// Returns what to do, in general. Nothing if it is over.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        (!self.is_resolved()).then(|| remedy(self.subject.cause))
    }

    /// Returns the command that explains the problem on one agent.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let AlertSubject { project, stack, .. } = &self.subject;
        let agent = self.examples.agents.first()?;
        let project =
            if project == DEFAULT_PROJECT { String::new() } else { format!(" --project {project}") };
        Some(format!("brokkr why {} --agent {agent}{project}", stack.name))
    }

    /// Returns what the first agent says, at most 500 characters.
    #[must_use]
    pub fn quoted(&self) -> Option<String> {
        let message = self.examples.message.clipped(LONGEST_MESSAGE);
        (!message.is_empty()).then(|| message.to_string())
    }

    /// Returns the fields for programs.
    #[must_use]
    pub fn data(&self) -> Value {
        let AlertSubject { project, stack, cause } = &self.subject;
        let mut data = json!({
            "alert_id": self.id(), "project": project, "cause": cause, "summary": self.title(),
            "stack": { "id": stack.id, "name": stack.name, "link": format!("/api/v1/stacks/{}", stack.id) },
            "agents": self.agents(), "since": self.since(),
        });
        let mut set = |key: &str, value: Value| {
            if !value.is_null() {
                data[key] = value;
            }
        };
        if let Notice::Updated { before, .. } = self.notice {
            set("agents_before", before.into());
        }
        if !self.examples.agents.is_empty() {
            set("examples", json!(self.examples.agents));
        }
        set("sequence_id", json!(self.examples.sequence_id));
        if !self.examples.reason.is_none() {
            set("reason", self.examples.reason.code().into());
        }
        set("message", json!(self.quoted()));
        set("next", json!(self.advice()));
        set("command", json!(self.command()));
        data
    }

    fn alert(&self) -> super::group::OpenAlert {
        match self.notice {
            Notice::Opened(alert) | Notice::Updated { alert, .. } | Notice::Resolved(alert) => alert,
        }
    }
}

fn counted(agents: u32) -> String {
    if agents == 1 { "1 agent".to_owned() } else { format!("{agents} agents") }
}
