//! The state of a stack on an agent, and the chain of hops behind it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, SequenceId, StackId};
use crate::reason::{Message, Reason};
use crate::report::{Condition, Hops, ObjectNote};

/// The state of a stack on an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Targeted, but the agent has not reported on the desired object yet.
    Pending,
    /// Applied, but not ready yet.
    Applied,
    /// All applied objects are ready.
    Healthy,
    /// The stack was healthy, and no longer is.
    Degraded,
    /// Applying stopped. The message and the objects say where.
    Failed,
    /// The stack was deleted or no longer targets the agent, and is being removed.
    Removing,
    /// A removal or prune is blocked; the message says by what.
    Blocked,
    /// All resources are gone.
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
    /// The version that the agent should have; for a removal, the version that the removal refers to.
    pub wanted_sequence_id: Option<SequenceId>,
    /// The version of the agent's last report.
    pub sequence_id: Option<SequenceId>,
    pub state: State,
    pub ready: u32,
    pub total: u32,
    #[serde(flatten)]
    pub reason: Reason,
    pub message: Message,
    pub objects: Vec<ObjectNote>,
    /// The conditions that the agent reports; empty before its first report.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    pub hops: Hops,
}

/// The progress of a stack on all agents. The numbers come from counters that every report updates, and from the
/// replica's snapshot of the fleet, so a request does not have to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackSummary {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The desired state: the highest sequence id.
    pub sequence_id: Option<SequenceId>,
    /// Agents that the stack targets, by name or by selector.
    pub targeted: u64,
    /// Agents that have announced that they hold resources of the stack.
    pub holding: u64,
    /// Targeted agents without a report on `sequence_id`.
    pub pending: u64,
    /// The last reports on `sequence_id`.
    #[serde(flatten)]
    pub counts: StateCounts,
    /// Agents whose last report is about an older version, and does not say that the stack was removed.
    pub behind: u64,
    /// The same counts for each version in the agents' last reports, newest first; at most 20.
    pub sequences: Vec<SequenceCounts>,
}

/// Number of agents for each state in their last reports.
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
    /// Returns the number of agents that still have the stack.
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

/// An error, grouped over all agents on which it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorGroup {
    /// The reason without the details that differ from cluster to cluster.
    #[serde(flatten)]
    pub reason: Reason,
    /// The same as a sentence.
    pub message: Message,
    /// The number of (stack, agent) pairs with this error.
    pub count: u64,
    /// The number of affected stacks.
    pub stacks: u64,
    /// The newest deployment object with this error.
    pub sequence_id: SequenceId,
    /// A few examples, with their own messages.
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
