//! The state of a stack on an agent, and the chain of hops behind it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, SequenceId, StackId};
use crate::report::{Condition, Hops, ObjectNote};

/// Where a stack is on an agent, in one word.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Targeted; the agent has reported nothing of the wanted object yet.
    Pending,
    /// Written, not yet ready.
    Applied,
    Healthy,
    Degraded,
    Failed,
    /// The stack was deleted or no longer targets the agent; not yet seen gone.
    Removing,
    /// A removal or prune waits for something that is named.
    Blocked,
    /// Seen to be gone.
    Removed,
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
    pub reason: String,
    pub message: String,
    pub objects: Vec<ObjectNote>,
    /// What the agent says of it at a glance; empty before its first report.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    pub hops: Hops,
}
