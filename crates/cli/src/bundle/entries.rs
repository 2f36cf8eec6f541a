//! Agents, stacks, errors and events in a support bundle: names, states and times.

use brokkr_api::agents::Agent;
use brokkr_api::events::Event;
use brokkr_api::report::ObjectNote;
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::status::{ErrorGroup, StackSummary};
use brokkr_api::why::Presence;
use brokkr_api::{Labels, SequenceId};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::preflight::WebhookHealth;

/// An agent, without its annotations.
#[derive(Clone, Debug, Serialize)]
pub struct BundledAgent {
    name: String,
    id: String,
    status: String,
    presence: Presence,
    last_seen_at: Option<Timestamp>,
    session_count: i64,
    session_duplicated: bool,
    revoked_at: Option<Timestamp>,
    abandoned_at: Option<Timestamp>,
    labels: Labels,
}

impl From<Agent> for BundledAgent {
    fn from(agent: Agent) -> Self {
        Self {
            name: agent.name.to_string(),
            id: agent.id.to_string(),
            status: agent.status.to_string(),
            presence: agent.presence,
            last_seen_at: agent.last_seen_at,
            session_count: agent.session_count,
            session_duplicated: agent.session_duplicated,
            revoked_at: agent.revoked_at,
            abandoned_at: agent.abandoned.map(|abandoned| abandoned.at),
            labels: agent.labels,
        }
    }
}

/// A stack, without its annotations, with the progress of its newest version.
#[derive(Clone, Debug, Serialize)]
pub struct BundledStack {
    name: String,
    id: String,
    sequence_id: Option<SequenceId>,
    created_at: Timestamp,
    targets: StackTargets,
    /// None if it could not be read, or was not requested: only the first `MOST_WITH_SUMMARY` stacks have one.
    summary: Option<StackSummary>,
}

impl BundledStack {
    pub fn new(stack: Stack, summary: Option<StackSummary>) -> Self {
        Self {
            name: stack.name.to_string(),
            id: stack.id.to_string(),
            sequence_id: stack.sequence_id,
            created_at: stack.created_at,
            targets: stack.targets,
            summary,
        }
    }
}

/// Converts an error group. The message of the group is generated from its reason alone, so it is kept. The
/// messages of the examples are left out, because they can quote a manifest.
pub fn error(group: &ErrorGroup) -> Value {
    let examples = group.examples.iter().map(|example| {
        json!({
            "stack": example.stack_name,
            "agent": example.agent_name,
            "sequence_id": example.sequence_id,
            "objects": objects(&example.objects),
        })
    });
    json!({
        "reason": group.reason.code(),
        "message": group.message,
        "count": group.count,
        "stacks": group.stacks,
        "sequence_id": group.sequence_id,
        "examples": examples.collect::<Vec<_>>(),
    })
}

pub fn event(event: &Event) -> Value {
    json!({
        "at": event.at,
        "id": event.id,
        "stack": event.stack_name,
        "agent": event.agent_name,
        "sequence_id": event.sequence_id,
        "transition": event.transition,
        "reason": event.reason.code(),
        "objects": objects(&event.objects),
        "hops": event.hops,
    })
}

fn objects(notes: &[ObjectNote]) -> Vec<Value> {
    notes
        .iter()
        .map(|note| json!({"object": note.object.to_string(), "reason": note.reason.code()}))
        .collect()
}

pub fn hook(hook: &WebhookHealth) -> Value {
    json!({
        "name": hook.name,
        "disabled_because": hook.disabled_because,
        "dead_letters": hook.dead,
        "has_more_dead_letters": hook.more,
    })
}
