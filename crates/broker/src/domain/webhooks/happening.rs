//! What happened, as webhooks receive it: ids, names, the reason and a link. Never content, never secrets.

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Report, Transition};
use brokkr_api::webhooks::WebhookEvent;
use brokkr_api::{AgentId, EventId, Labels, SequenceId, StackId};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A longer message of an agent is clipped, and longer details are left out, so that a webhook message stays
/// below 20 kB even if every byte is escaped.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_DETAILS: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub event: WebhookEvent,
    pub at: Timestamp,
    pub stack: Option<NamedStack>,
    pub agent: Option<NamedAgent>,
    pub sequence_id: Option<SequenceId>,
    /// The id of the event in the API.
    pub event_id: Option<EventId>,
    pub reason: Reason,
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStack {
    pub id: StackId,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAgent {
    pub id: AgentId,
    pub name: String,
    pub labels: Labels,
}

impl Happening {
    /// Returns a happening without a stack or an agent.
    #[must_use]
    pub fn new(event: WebhookEvent, at: Timestamp) -> Self {
        Self {
            event,
            at,
            stack: None,
            agent: None,
            sequence_id: None,
            event_id: None,
            reason: Reason::None,
            message: Message::default(),
        }
    }

    /// Returns the happening for a change of a stack by a user.
    #[must_use]
    pub fn of_stack(event: WebhookEvent, at: Timestamp, stack: NamedStack, sequence: SequenceId) -> Self {
        Self { stack: Some(stack), sequence_id: Some(sequence), ..Self::new(event, at) }
    }

    /// Returns the happening for a report; none for a transition that this broker does not know.
    #[must_use]
    pub fn reported(report: &Report, stack: NamedStack, agent: NamedAgent) -> Option<Self> {
        Some(Self {
            agent: Some(agent),
            event_id: Some(report.id),
            reason: report.reason.clone(),
            message: report.message.clone(),
            ..Self::of_stack(
                outcome(&report.transition, &report.reason)?,
                report.at,
                stack,
                report.sequence_id,
            )
        })
    }

    /// Returns the message for programs.
    #[must_use]
    pub fn value(&self, project: &str) -> Value {
        let mut data = Map::new();
        let mut set = |key: &str, value: Value| data.insert(key.to_owned(), value);
        set("project", project.into());
        if let Some(stack) = &self.stack {
            set(
                "stack",
                json!({ "id": stack.id, "name": stack.name, "link": format!("/api/v1/stacks/{}", stack.id) }),
            );
        }
        if let Some(agent) = &self.agent {
            set(
                "agent",
                json!({ "id": agent.id, "name": agent.name, "link": format!("/api/v1/agents/{}", agent.id) }),
            );
        }
        if let Some(sequence) = self.sequence_id {
            set("sequence_id", json!(sequence));
        }
        if let Some(event) = self.event_id {
            set("event_id", json!(event));
        }
        if !self.reason.is_none() {
            set("reason", self.reason.code().into());
        }
        if let Some(details) =
            self.reason.details().filter(|details| details.to_string().len() <= LONGEST_DETAILS)
        {
            set("details", details);
        }
        if !self.message.is_empty() {
            set("message", json!(self.message.clipped(LONGEST_MESSAGE)));
        }
        json!({ "type": self.event, "timestamp": self.at, "data": data })
    }

    /// Returns the message in one line, for people.
    #[must_use]
    pub fn title(&self, project: &str) -> String {
        if self.event == WebhookEvent::Ping {
            return format!("Brokkr: this is a test message of the project {project}");
        }
        let mut title = match &self.stack {
            Some(stack) => format!("{project}/{}: {}", stack.name, self.event),
            None => format!("{project}: {}", self.event),
        };
        if let Some(sequence) = self.sequence_id {
            title += &format!(" {sequence}");
        }
        if let Some(agent) = &self.agent {
            title += &format!(" on {}", agent.name);
        }
        if !self.message.is_empty() {
            title += &format!(": {}", self.message.clipped(LONGEST_MESSAGE));
        }
        title
    }
}

fn outcome(transition: &Transition, reason: &Reason) -> Option<WebhookEvent> {
    let event = match transition {
        // An `Applied` report with a reason repeats an earlier one and says why the version is not ready yet.
        // It is not a new outcome.
        Transition::Applied if !reason.is_none() => return None,
        Transition::Applied => WebhookEvent::Applied,
        Transition::Healthy => WebhookEvent::Healthy,
        Transition::Degraded => WebhookEvent::Degraded,
        Transition::Failed => WebhookEvent::Failed,
        Transition::Repaired => WebhookEvent::Repaired,
        Transition::Drifted => WebhookEvent::Drifted,
        Transition::Suspended => WebhookEvent::Suspended,
        Transition::Resumed => WebhookEvent::Resumed,
        Transition::Blocked => WebhookEvent::Blocked,
        Transition::Removed => WebhookEvent::Removed,
        Transition::Other(_) => return None,
    };
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_small_whatever_an_agent_reports() {
        let stack = NamedStack { id: StackId::generate(), name: "s".repeat(63) };
        let agent = NamedAgent { id: AgentId::generate(), name: "a".repeat(63), labels: Labels::new() };
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let happening = Happening {
            agent: Some(agent),
            event_id: Some(EventId::generate()),
            // Each character is escaped to six bytes.
            reason: Reason::Immutable { fields: vec!["\u{1}".repeat(10_000)] },
            message: Message::new("\u{1}".repeat(100_000)),
            ..Happening::of_stack(WebhookEvent::Failed, at, stack, SequenceId(i64::MAX))
        };
        let read = happening.value(&"p".repeat(63));
        let bytes = read.to_string().len();
        assert!(bytes < 20_000, "{bytes}");
        assert_eq!(read["type"], "stack.failed");
        assert_eq!(read["timestamp"], "2027-01-15T08:00:00Z");
        assert_eq!(read["data"]["message"].as_str().unwrap().chars().count(), LONGEST_MESSAGE + 1);
        // Absent fields are omitted.
        let ping = Happening::new(WebhookEvent::Ping, at).value("shop");
        let expected = json!({ "type": "ping", "timestamp": at, "data": { "project": "shop" } });
        assert_eq!(ping, expected);
    }
}
