//! The target state as agents request it: which versions to apply and which stacks to remove, without
//! contents.
//!
//! The entity tag of a response is the SHA-256 of exactly its bytes. The agent computes it again and so
//! detects a truncated response. Values that change without affecting the agent (position, spread of
//! reconnects) are sent in headers instead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agents::AgentStatus;
use crate::ids::{AgentId, Checksum, InstallationId, SequenceId, StackId};
use crate::objects::JobRef;
use crate::stacks::DriftPolicy;
use crate::suspensions::Suspended;
use crate::windows::Schedule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    pub protocol: u32,
    pub installation: InstallationId,
    pub agent: AgentId,
    pub status: AgentStatus,
    /// Ordered by sequence id. A stack that the agent holds and that is not here is unknown to the
    /// broker: it is kept and reported. Absence is never deletion.
    pub stacks: Vec<TargetStack>,
    /// The checksum of the health rules of the installation; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_rules: Option<Checksum>,
}

/// One stack of the target state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetStack {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The version to apply; for a removal, the version that the removal refers to.
    pub sequence_id: SequenceId,
    /// SHA-256 of exactly the submitted bytes. For a deletion marker, of no bytes.
    pub checksum: Checksum,
    /// The digest of the parsed objects. An agent that parses the content differently refuses it.
    pub parsed_digest: Checksum,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
    /// The version is no longer rolled out, and there is none that every agent gets: an agent that has begun it keeps it, others
    /// do not begin it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// A wave begins when the one before is healthy, or has failed to become healthy for this long; absent: waves do not wait. Fixed
    /// when the version was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_wait_seconds: Option<u32>,
    /// Jobs that run again with this version, although they have run with the same manifest before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rerun: Vec<JobRef>,
    /// When the agent may begin; absent: at any time. It goes on with what it has begun, and repairs drift, at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// What the agent leaves alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspensions: Vec<Suspended>,
    /// The checksum of the health rules of the stack; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_rules: Option<Checksum>,
    /// What the agent does about changes that others make to objects of the stack.
    #[serde(default, skip_serializing_if = "DriftPolicy::is_default")]
    pub drift: DriftPolicy,
    /// What the project may do on this agent. Absent without grants: then the agent's own permissions apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Approvals of prunes that need one.
    #[serde(default)]
    pub approvals: Vec<Approval>,
    pub published_at: Timestamp,
    pub targeted_at: Timestamp,
    pub released_at: Timestamp,
}

/// Why the agent must remove a stack that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Removal {
    /// The stack was deleted: there is a deletion marker.
    Deleted,
    /// The stack was deleted, but its resources stay in the cluster, without Brokkr's labels and
    /// annotations.
    Released,
    /// The stack still exists, but no longer targets this agent.
    Untargeted,
}

/// What a project may do on an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    #[serde(default)]
    pub namespaces: Vec<String>,
    #[serde(default)]
    pub kinds: Vec<String>,
    /// The ServiceAccount to act as, `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// Approves the prune of one version, up to a number of objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    pub sequence_id: SequenceId,
    pub objects: u32,
    pub approved_by: String,
    pub approved_at: Timestamp,
}
