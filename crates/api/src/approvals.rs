//! Approvals of large prunes, which wait for them (B5).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, SequenceId};

/// Lets the prune of one version delete up to this many objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovePrune {
    /// The version whose prune waits: the newest of the stack.
    pub sequence_id: SequenceId,
    /// How many objects may go on an agent, at most: the number that the agent told.
    pub objects: u32,
    /// The one agent that it is for, by name or id; without it, every agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PruneApproval {
    pub sequence_id: SequenceId,
    pub objects: u32,
    /// None: every agent.
    pub agent_id: Option<AgentId>,
    pub approved_by: String,
    pub approved_at: Timestamp,
}
