//! The state of a stack on an agent, and the chain of hops behind it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, SequenceId, StackId};
use crate::reason::{Message, Reason};
use crate::report::{Condition, Hops, ObjectNote};

/// Where a stack is on an agent, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Targeted; the agent has reported nothing of the wanted object yet.
    Pending,
    /// Written, not yet ready.
    Applied,
    /// Everything that was applied does its work.
    Healthy,
    /// It was healthy, and something no longer is.
    Degraded,
    /// It stopped: the message and the objects say where.
    Failed,
    /// The stack was deleted or no longer targets the agent; not yet seen gone.
    Removing,
    /// A removal or prune waits for something that is named.
    Blocked,
    /// Seen to be gone.
    Removed,
    /// The agent, or the broker, is newer than the reader, which does not know this state.
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackStatus {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    pub agent_id: AgentId,
    pub agent_name: String,
    /// What the agent should have (for a removal, the object that it goes with).
    pub wanted_sequence_id: Option<SequenceId>,
    /// What the agent last reported about.
    pub sequence_id: Option<SequenceId>,
    pub state: State,
    pub ready: u32,
    pub total: u32,
    #[serde(flatten)]
    pub reason: Reason,
    pub message: Message,
    pub objects: Vec<ObjectNote>,
    /// What the agent says of it at a glance; empty before its first report.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    pub hops: Hops,
}

/// How far a stack is on all agents, in figures. They come from counters that follow every report, and from the
/// replica's own picture of the fleet; nothing is counted when somebody asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackSummary {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The desired state: the highest sequence id.
    pub sequence_id: Option<SequenceId>,
    /// Agents that the stack reaches, by name or by selector.
    pub targeted: u64,
    /// Agents that said before they wrote that they hold resources of the stack.
    pub holding: u64,
    /// Targeted, and nothing is reported of `sequence_id` yet.
    pub pending: u64,
    /// What was last reported of `sequence_id`.
    #[serde(flatten)]
    pub counts: StateCounts,
    /// Agents whose last word is about an older object, and not that it was removed.
    pub behind: u64,
    /// The same for each object that an agent's last word is about, newest first; 20 at most.
    pub sequences: Vec<SequenceCounts>,
}

/// Agents by what they last reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateCounts {
    pub applied: u64,
    pub healthy: u64,
    pub degraded: u64,
    pub failed: u64,
    pub blocked: u64,
    pub removed: u64,
    /// Transitions that this broker does not know.
    #[serde(default)]
    pub unknown: u64,
}

impl StateCounts {
    /// All but those that no longer have it.
    #[must_use]
    pub fn present(&self) -> u64 {
        self.applied + self.healthy + self.degraded + self.failed + self.blocked + self.unknown
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SequenceCounts {
    pub sequence_id: SequenceId,
    #[serde(flatten)]
    pub counts: StateCounts,
}

/// One error, on however many agents it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorGroup {
    /// What they have in common; details that differ from cluster to cluster are left out.
    #[serde(flatten)]
    pub reason: Reason,
    /// The same as a sentence.
    pub message: Message,
    /// How many (stack, agent) pairs say so now.
    pub count: u64,
    /// On how many stacks.
    pub stacks: u64,
    /// The newest deployment object that it is said of.
    pub sequence_id: SequenceId,
    /// A few of them, with their own words.
    pub examples: Vec<ErrorExample>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorExample {
    pub stack_id: StackId,
    pub stack_name: String,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub sequence_id: SequenceId,
    pub message: Message,
    pub objects: Vec<ObjectNote>,
}
