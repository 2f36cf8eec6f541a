//! The installation as a whole: its epoch, whether it is on hold, and what a restore left to settle.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, Checksum, InstallationId, SequenceId, StackId};
use crate::names::Name;
use crate::objects::DeploymentObject;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct System {
    pub installation: InstallationId,
    /// Of the replica that answers.
    pub version: String,
    pub protocol: u32,
    pub oldest_protocol: u32,
    /// Raised after every restore.
    pub epoch: i64,
    /// How far this replica has seen: `epoch.horizon`.
    pub position: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Agents that were asked what they hold, and have not answered yet.
    pub agents_to_tell: u64,
    /// Stacks on which agents are ahead of the database.
    pub stacks_ahead: u64,
    /// Stacks that agents hold and the database does not know.
    pub stacks_unknown: u64,
    /// (stack, agent) pairs that were kept though the restored targets did not name them.
    pub targets_kept: u64,
    /// Newest first, the last ten.
    pub raised: Vec<RaisedEpoch>,
    /// How many agents are of which version, the most frequent first, twenty at most. Without those that were revoked.
    #[serde(default)]
    pub agent_versions: Vec<AgentVersion>,
}

/// How many agents said, when they last started, that they are of this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentVersion {
    /// None of those that never started, or did not say.
    pub version: Option<String>,
    pub agents: u64,
}

/// Why nothing new is handed out, and nothing may be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    pub since: Timestamp,
    pub because: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RaisedEpoch {
    pub epoch: i64,
    pub epoch_before: i64,
    pub raised_at: Timestamp,
    pub raised_by: String,
    /// The highest sequence id that was known to be handed out.
    pub sequence_before: SequenceId,
    /// Every later one is above this.
    pub sequence_after: SequenceId,
}

/// A stack on which agents and database differ since a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsettledStack {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// What the database has; none if it does not know the stack, or has no object of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<DeploymentObject>,
    /// How many agents hold it, in a newer version than the database's.
    pub agent_count: u64,
    /// The first hundred of them, the newest version first.
    pub agents: Vec<Holder>,
    /// A content that was asked for and has not come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
}

/// An agent that holds something newer than the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    pub agent_id: AgentId,
    pub agent_name: Name,
    /// None from an agent that is too old to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<SequenceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The agent is removing the stack.
    #[serde(default)]
    pub removing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Wish {
    pub agent_name: Name,
    pub wanted_at: Timestamp,
    /// Why the agent cannot hand it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How to settle one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Settlement {
    /// Publish what the database has as a new object.
    KeepRestored,
    /// Publish what this agent has, by name or id, as a new object.
    Take { agent: String },
    /// Only for a stack that the database does not know: whoever holds it removes it.
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// What was published; none while an agent is asked for its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<DeploymentObject>,
    /// The agent that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Name>,
}

/// A content that the broker lost and this agent keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WantedContent {
    pub stack_id: StackId,
    pub sequence_id: SequenceId,
    pub checksum: Checksum,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WantedContents {
    pub items: Vec<WantedContent>,
}
