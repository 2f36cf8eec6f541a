//! Approvals of large prunes (B5).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, SequenceId};

/// Lets the prune of one version delete up to this many objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovePrune {
    /// The version with the pending prune: the newest of the stack.
    pub sequence_id: SequenceId,
    /// The maximum number of objects to delete on an agent: the number that the agent reported.
    pub objects: u32,
    /// The agent, by name or id; all agents if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PruneApproval {
    pub sequence_id: SequenceId,
    pub objects: u32,
    /// The agent; all agents if null.
    pub agent_id: Option<AgentId>,
    pub approved_by: String,
    pub approved_at: Timestamp,
}
