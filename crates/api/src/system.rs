//! The installation as a whole: its epoch, whether it is on hold, and which stacks need settling after a restore.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, Checksum, InstallationId, SequenceId, StackId, TokenId};
use crate::names::Name;
use crate::objects::DeploymentObject;
use crate::position::Position;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct System {
    pub installation: InstallationId,
    /// Version of the replica that sent this response.
    pub version: String,
    pub protocol: u32,
    pub oldest_protocol: u32,
    /// Raised after every restore.
    pub epoch: i64,
    /// How far this replica has read: `epoch.horizon`.
    pub position: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Agents that were asked to report the stacks they hold and have not answered yet.
    pub agents_to_report: u64,
    /// Stacks on which agents are ahead of the database.
    pub stacks_ahead: u64,
    /// Stacks that agents hold and the database does not know.
    pub stacks_unknown: u64,
    /// Stacks that agents say they have although these do not target them. Nothing happens to them until an admin decides.
    pub stacks_unconfirmed: u64,
    /// (stack, agent) pairs that were kept although the restored targets did not include them.
    pub targets_kept: u64,
    /// The last ten raises, newest first.
    pub raised: Vec<RaisedEpoch>,
    /// Number of agents per version, most frequent first, at most 20. Revoked agents are not counted.
    #[serde(default)]
    pub agent_versions: Vec<AgentVersion>,
    /// None if the broker is older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_role: Option<DatabaseRole>,
}

/// The database role of the replica that sent this response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatabaseRole {
    pub name: String,
    /// Whether the role can change and drop tables, and so rewrite the audit log: it owns them, is a member of the role that
    /// does, or is a superuser.
    pub owns_tables: bool,
    /// Privileges that the broker needs and the role does not have.
    pub missing: Vec<MissingPrivilege>,
}

/// A privilege on a table, a sequence or a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingPrivilege {
    pub object: String,
    pub privilege: String,
}

impl fmt::Display for MissingPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.privilege, self.object)
    }
}

/// Number of agents that reported this version when they last started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentVersion {
    /// None for agents that never started or did not report a version.
    pub version: Option<String>,
    pub agents: u64,
}

/// The broker is on hold: agents get nothing new and changes are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    pub since: Timestamp,
    /// The cause as a sentence.
    pub because: String,
    pub cause: HoldCause,
}

impl Hold {
    #[must_use]
    pub fn new(since: Timestamp, cause: HoldCause) -> Self {
        Self { since, because: cause.to_string(), cause }
    }
}

/// Who has seen something that the database does not contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Witness {
    Agent {
        agent_id: AgentId,
        agent_name: String,
    },
    /// A user with this token.
    Token {
        token_id: TokenId,
        token_name: String,
        project: String,
    },
    /// A running replica of the broker.
    Replica,
}

impl fmt::Display for Witness {
    /// Everyone whose request is refused sees this text, so it does not name the token and its project.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent { agent_id, agent_name } => write!(f, "the agent {agent_name} ({agent_id})"),
            Self::Token { token_id, .. } => write!(f, "a user of the token {token_id}"),
            Self::Replica => f.write_str("a running replica"),
        }
    }
}

/// Why the broker is on hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum HoldCause {
    /// A position that the broker issued (`seen`) is above that of the database at that time (`database`).
    Ahead { witness: Witness, seen: Position, database: Position },
    /// The database has lost transactions that were already shown at `at`, although its position is as high. A standby
    /// that had not received them was promoted, or a backup was restored.
    HistoryLost { witness: Witness, at: Timestamp },
    /// An operator put the broker on hold.
    Operator { reason: String },
}

impl fmt::Display for HoldCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead { witness, seen, database } => {
                write!(f, "{witness} has seen position {seen}, but the database is at {database}")
            }
            Self::HistoryLost { witness, at } => {
                write!(f, "{witness} has seen the state of {at:.3}, which the database has lost")
            }
            Self::Operator { reason } => f.write_str(reason),
        }
    }
}

/// Lifts the hold, which confirms that the restored database is the right one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiftHold {
    /// Why, for the record: 1 to 1024 characters.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RaisedEpoch {
    pub epoch: i64,
    pub epoch_before: i64,
    pub raised_at: Timestamp,
    pub raised_by: String,
    /// Why an admin lifted the hold; none if the epoch was raised with `brokkr-broker epoch raise`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the broker was on hold before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_because: Option<String>,
    /// The highest sequence id known to be in use before the raise.
    pub sequence_before: SequenceId,
    /// Every later sequence id is above this one.
    pub sequence_after: SequenceId,
}

/// A stack on which agents and the restored database differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsettledStack {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The newest restored object; none if the database does not know the stack or has no object of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<DeploymentObject>,
    /// How many agents the stack is to be settled for.
    pub agent_count: u64,
    /// The first 100 of them, newest version first.
    pub agents: Vec<Holder>,
}

/// An agent that holds a stack, and the version it reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    pub agent_id: AgentId,
    pub agent_name: Name,
    /// None if the agent did not report its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<SequenceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The agent is removing the stack.
    #[serde(default)]
    pub removing: bool,
    /// The stack targets the agent, or did when the agent announced it.
    pub confirmed: bool,
}

/// How to settle one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Settlement {
    /// Publish the restored content as a new deployment object.
    PublishRestored,
    /// Create a stack that the database does not know under its old id and name, without content, with every agent
    /// that holds it as an explicit target. The agents keep what they have until a new object is submitted.
    Recreate,
    /// Remove a stack that the database does not know from every agent that holds it.
    Delete,
    /// Make every agent that has the stack without being a target of it an explicit target.
    Keep,
    /// Remove the stack from every agent that has it without being a target of it.
    Remove,
}

/// The result of a settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The published object; none if the stack was recreated, which publishes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<DeploymentObject>,
    /// How many agents became explicit targets of the stack.
    #[serde(default)]
    pub targets: u64,
    /// How many agents remove the stack because they are no targets of it.
    #[serde(default)]
    pub removals: u64,
}
