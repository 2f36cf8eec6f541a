//! Agents: joining, sessions, the stacks that they hold, and the stacks that target them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, Checksum, InstallationId, InstanceId, SequenceId, StackId};
use crate::names::{Labels, Name};
use crate::selector::Selector;
use crate::upgrades::ReportedUpgrade;
use crate::why::Presence;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum AgentStatus {
    Active,
    /// Gets no deployment objects and changes nothing in its cluster.
    Inactive,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub id: AgentId,
    pub name: Name,
    pub status: AgentStatus,
    pub labels: Labels,
    pub annotations: Labels,
    pub created_at: Timestamp,
    /// When the agent last asked for its target state.
    pub last_seen_at: Option<Timestamp>,
    /// Whether the agent polls as often as expected.
    pub presence: Presence,
    /// The version that the agent reported when it last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How often the agent has started. If two processes have the same count, neither writes.
    pub session_count: i64,
    /// Whether two processes opened a session with the same count; then neither may write.
    pub session_duplicated: bool,
    /// When the agent registered its current key. Absent from brokers before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_since: Option<Timestamp>,
    /// When the agent was asked for a new key; absent once it has registered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation_asked_at: Option<Timestamp>,
    /// When the agent's keys were revoked. It can join again with a new join token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Set if the agent was abandoned: its cluster is lost, and nothing there needs to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<Abandoned>,
    /// What the agent has last reported about an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<ReportedUpgrade>,
}

/// Who abandoned an agent, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Abandoned {
    pub at: Timestamp,
    /// The name of the token.
    pub by: String,
    pub because: String,
}

/// Abandons an agent of a lost cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AbandonAgent {
    /// Recorded with the agent; at most 500 bytes.
    pub reason: String,
}

/// Changes the given fields of an agent. Labels and annotations are replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Labels>,
}

/// Registers an agent with a join token and the public half of the key that it generated in its cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterAgent {
    pub token: String,
    /// Ed25519 public key, 32 bytes, base64url without padding.
    pub public_key: String,
    /// The key's signature, 64 bytes, base64url without padding, of: the text `brokkr: agent registration, version 1`, a
    /// zero byte, the SHA-256 of the token, the public key.
    pub signature: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredAgent {
    pub agent_id: AgentId,
    pub name: Name,
    /// The audience of the agent's assertions.
    pub installation_id: InstallationId,
}

/// The public half of a new key that the agent has generated and stored. The old and the new key sign: the text `brokkr:
/// agent key change, version 1`, a zero byte, the ids of the installation and of the agent (16 bytes each), the old public
/// key, the new public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKey {
    /// Ed25519 public key, 32 bytes, base64url without padding.
    pub public_key: String,
    /// The key that is replaced, in the same form. It must be the current one.
    pub old_public_key: String,
    /// The new key's signature, 64 bytes, base64url without padding.
    pub signature: String,
    /// The old key's signature, in the same form.
    pub old_signature: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedKey {
    pub public_key: String,
    /// Until when the previous key is also valid.
    pub old_key_until: Option<Timestamp>,
}

/// Requests a join token for an existing agent, which keeps its id, labels and targets and gets a new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RejoinAgent {
    /// How long the token is valid: an hour by default, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// Opens a session. Only the session with the highest count may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    pub count: i64,
    pub instance: InstanceId,
    /// The agent's own namespace in its cluster, which no stack may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionVerdict {
    /// This session has the highest count: it may write.
    Serves,
    /// A session with a higher count exists: stop writing.
    Superseded,
    /// Another process has the same count: neither may write, and an alert is raised.
    Duplicated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenedSession {
    pub verdict: SessionVerdict,
    /// The highest count that the broker knows. An agent that has lost its stored state continues above it. 0 from an older
    /// broker.
    #[serde(default)]
    pub count: i64,
}

/// The complete set of stacks that the agent holds, sent before its first write for a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    pub stacks: Vec<StackId>,
    /// Details of the stacks that the agent has. Without them, a stack is only announced: nothing of it is in the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldStack>,
}

/// A stack that an agent holds, with the data to restore it if the broker lost it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldStack {
    pub stack_id: StackId,
    pub project: String,
    pub stack_name: String,
    /// The highest sequence id that the agent has received; it accepts no lower one.
    pub sequence_id: SequenceId,
    /// The checksum of the content with this sequence id; absent if it was never fetched, or the stack is being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The stack is being removed.
    #[serde(default)]
    pub removing: bool,
}

/// One reason why an agent gets a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: Name,
    /// The object that the agent should have; none if nothing was submitted yet.
    pub sequence_id: Option<SequenceId>,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Why {
    /// The stack names this agent.
    Explicit,
    /// The agent's labels match this selector of the stack.
    Selector { selector: Selector },
}
