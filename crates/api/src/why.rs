//! Why something is not as it should be: the chain of hops, the first that is broken, and the evidence.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agents::AgentStatus;
use crate::ids::{AgentId, SequenceId, StackId};
use crate::reason::{Message, Reason};
use crate::report::{Hops, Transition};
use crate::status::State;

/// Whether an agent is there, judged by how often it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Presence {
    /// It has never asked.
    Never,
    /// It asks as often as it should.
    Fresh,
    /// It missed a few polls.
    Late,
    /// It missed many; that is told once, and once that it is over.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AgentEventKind {
    /// It fell silent.
    Silent,
    /// It is back.
    Back,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEvent {
    pub kind: AgentEventKind,
    pub at: Timestamp,
}

/// The hops in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Hop {
    /// It was submitted and stored.
    Published,
    /// The stack reaches the agent, by name or by selector.
    Targeted,
    /// The agent may have it.
    Released,
    /// The agent has its content.
    Fetched,
    /// The content is what was submitted, and reads the same.
    Verified,
    /// Everything of it is written.
    Applied,
    /// What it no longer contains is gone.
    Pruned,
    /// Everything of it does its work.
    Healthy,
    /// The broker was told so.
    Reported,
}

/// What keeps a hop from being passed, in one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// Nothing was submitted to the stack yet.
    NothingSubmitted,
    /// The stack was deleted, and the agent no longer has it.
    Deleted,
    /// Neither named nor selected.
    NotTargeted,
    /// The project was not granted the agent.
    NotGranted,
    /// The agent is paused.
    AgentInactive,
    /// The agent has never asked for its target state.
    AgentNeverSeen,
    /// The agent missed many polls.
    AgentSilent,
    /// The agent missed a few polls.
    AgentLate,
    /// Somebody comes in the agent's name, and is refused: what it signs with is no key of the agent.
    AgentRefused,
    /// Two processes claim to be the agent, and both hold.
    SessionTied,
    /// The database was restored, and the epoch was not raised yet: agents are told nothing.
    OnHold,
    /// The agent has a newer version than the restored database, and never goes back to an older one.
    AgentAhead,
    /// The agent is there, and has not told anything of this object yet.
    NotReportedYet,
    /// It stopped with an error.
    Failed,
    /// The cluster does not serve a kind that the stack has.
    UnknownKind,
    /// The namespace of an object is not there, or on its way out.
    NamespaceMissing,
    /// The agent, or the account that it acts as, has not the right.
    Forbidden,
    /// A field changed that cannot be.
    ImmutableField,
    /// A quota of the cluster is used up, by objects or by Pods.
    QuotaExceeded,
    /// An admission webhook of the cluster said no.
    RefusedByWebhook,
    /// It belongs to another stack, or to another agent.
    OwnedByOther,
    /// An image cannot be pulled.
    ImageNotPulled,
    /// A container ends again and again.
    CrashLoop,
    /// No node fits.
    Unschedulable,
    /// Somebody changes the same fields as often as they are put back.
    Contested,
    /// What was deleted stays for a finalizer.
    Finalizer,
    /// A removal or prune waits for something: a finalizer, foreign content.
    Blocked,
    /// A prune waits for an approval.
    AwaitsApproval,
    /// Everything is written, and something is not ready.
    NotReady,
    /// It was healthy, and no longer is.
    Degraded,
    /// The stack is being removed from the agent.
    Removing,
    /// One that this program does not know: the broker is newer.
    #[serde(other)]
    Other,
}

/// The first hop that is not passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Broken {
    pub hop: Hop,
    pub cause: Cause,
    /// One sentence for people.
    pub message: Message,
    /// What to do next.
    pub next: String,
    /// The same as a command that can be typed as it stands; none where it takes more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Why a stack is not as it should be on an agent, or that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackWhy {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub state: State,
    /// What the agent should have (for a removal, the object that it goes with).
    pub wanted_sequence_id: Option<SequenceId>,
    /// What it last reported about.
    pub sequence_id: Option<SequenceId>,
    pub hops: Hops,
    /// None: everything is as it should be.
    pub broken: Option<Broken>,
    /// What speaks for it, most telling first.
    pub evidence: Vec<String>,
}

/// Why an agent is not as it should be, or that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentWhy {
    pub agent_id: AgentId,
    pub agent_name: String,
    pub status: AgentStatus,
    pub presence: Presence,
    pub last_seen_at: Option<Timestamp>,
    /// The last times that it fell silent or came back, newest first.
    pub events: Vec<AgentEvent>,
    /// What is wrong with the agent itself; none if nothing is.
    pub broken: Option<Broken>,
    pub evidence: Vec<String>,
    /// Stacks that are not as they should be on it; 100 at most.
    pub stacks: Vec<StackWhy>,
    /// How many stacks it should have, or holds.
    pub affected_stacks: u64,
}

/// What happened to one deployment object on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SequenceHops {
    pub sequence_id: SequenceId,
    pub hops: Hops,
    /// What was reported, oldest first.
    pub reports: Vec<ReportedTransition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedTransition {
    pub transition: Transition,
    pub at: Timestamp,
    #[serde(flatten)]
    pub reason: Reason,
    pub message: Message,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_a_newer_broker_is_read_as_one_that_is_not_known() {
        assert_eq!(serde_json::from_str::<Cause>("\"moon_phase\"").unwrap(), Cause::Other);
        assert_eq!(serde_json::from_str::<Cause>("\"unknown_kind\"").unwrap(), Cause::UnknownKind);
    }
}
