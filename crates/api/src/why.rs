//! Explains why a stack is not healthy: the chain of hops, the first that is not passed, and the evidence.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agents::AgentStatus;
use crate::ids::{AgentId, SequenceId, StackId};
use crate::reason::{Message, Reason};
use crate::report::{Hops, Transition};
use crate::status::State;
use crate::upgrades::ReportedUpgrade;

/// Whether an agent polls as often as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Presence {
    /// It has never polled.
    Never,
    /// It polls as often as expected.
    Fresh,
    /// It missed a few polls.
    Late,
    /// It missed many polls. An event is recorded when this starts and when it ends.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AgentEventKind {
    /// It stopped polling.
    Silent,
    /// It polls again.
    Back,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEvent {
    pub kind: AgentEventKind,
    pub at: Timestamp,
}

/// The hops, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Hop {
    /// The version was submitted and stored.
    Published,
    /// The stack targets the agent, by name or by selector.
    Targeted,
    /// The version was released to the agent.
    Released,
    /// The agent has fetched the content.
    Fetched,
    /// The content has the submitted checksum and parses to the same objects.
    Verified,
    /// All objects are applied.
    Applied,
    /// Objects that the version no longer contains are gone.
    Pruned,
    /// All objects are ready.
    Healthy,
    /// The agent has reported the result to the broker.
    Reported,
}

/// Why a hop is not passed, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// Nothing was submitted to the stack yet.
    NothingSubmitted,
    /// The stack was deleted, and the agent no longer has it.
    Deleted,
    /// The stack neither names nor selects the agent.
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
    /// Requests in the agent's name are refused, because they are not signed with a key of the agent.
    AgentRefused,
    /// Two processes claim to be the agent, so neither writes.
    SessionDuplicated,
    /// The database was restored and the epoch is not raised yet, so agents get no target state.
    OnHold,
    /// The agent has a newer version than the restored database, and never goes back to an older one.
    AgentAhead,
    /// The newest version is being rolled out, and is not released to the agent yet.
    HeldBack,
    /// The agent begins nothing outside of its maintenance window, or in a freeze.
    WindowClosed,
    /// The next wave inside the stack is written when the one before is ready.
    WaitingForWave,
    /// A wave inside the stack is not ready within its time, or a Job of it has failed.
    WaveNotReady,
    /// The stack, or an object of it, is suspended on the agent.
    Suspended,
    /// The next wave of the rollout of the newest version needs approvals.
    GateClosed,
    /// The rollout of the newest version is paused.
    RolloutPaused,
    /// The rollout of the newest version was stopped before it reached the agent.
    RolloutStopped,
    /// The agent polls, but has not reported on this version yet.
    NotReportedYet,
    /// Applying stopped with an error.
    Failed,
    /// The cluster does not serve a kind of the stack.
    UnknownKind,
    /// The namespace of an object does not exist, or is being deleted.
    NamespaceMissing,
    /// The agent, or the account that it impersonates, lacks a permission.
    Forbidden,
    /// An immutable field changed.
    ImmutableField,
    /// A quota of the cluster is exceeded, by objects or by Pods.
    QuotaExceeded,
    /// An admission webhook of the cluster refused a request.
    RefusedByWebhook,
    /// An object belongs to another stack or another agent.
    OwnedByOther,
    /// An image cannot be pulled.
    ImageNotPulled,
    /// A container exits repeatedly.
    CrashLoop,
    /// A Job failed and is not retried.
    JobFailed,
    /// No node fits.
    Unschedulable,
    /// Another client changes the same fields again after every repair.
    Contested,
    /// A finalizer delays a deletion.
    Finalizer,
    /// A removal or prune is blocked, and no other cause fits.
    Blocked,
    /// A prune waits for an approval.
    AwaitsApproval,
    /// All objects are applied, but some are not ready.
    NotReady,
    /// The stack was healthy, and no longer is.
    Degraded,
    /// The stack is being removed from the agent.
    Removing,
    /// A cause that this program does not know, from a newer broker.
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
    /// The same as one complete command; absent if more than one is needed, or if it would change more than the problem
    /// affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<NextCommand>,
}

/// A command that solves a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextCommand {
    /// What to type.
    pub line: String,
    /// What the command changes.
    pub reach: Reach,
    /// What to check before; absent if the command can do no harm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_first: Option<String>,
}

/// What a command changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reach {
    /// One object in the cluster of the agent.
    Object,
    /// The cluster of the agent.
    Cluster,
    /// One agent.
    Agent,
    /// A stack, on all agents that it targets.
    Stack { agents: u64 },
    /// What a project may deploy to all agents that the grant selects.
    Grant { agents: u64 },
    /// All agents of the installation.
    Installation,
    /// From a newer broker.
    #[serde(other)]
    Other,
}

/// Explains the state of a stack on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StackWhy {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub state: State,
    /// The version that the agent should have; for a removal, the version that the removal refers to.
    pub wanted_sequence_id: Option<SequenceId>,
    /// The version of the agent's last report.
    pub sequence_id: Option<SequenceId>,
    pub hops: Hops,
    /// The first hop that is not passed; null if all are.
    pub broken: Option<Broken>,
    /// Facts that support the explanation, most important first.
    pub evidence: Vec<String>,
}

/// Explains the state of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentWhy {
    pub agent_id: AgentId,
    pub agent_name: String,
    pub status: AgentStatus,
    pub presence: Presence,
    pub last_seen_at: Option<Timestamp>,
    /// The last times that it stopped or resumed polling, newest first.
    pub events: Vec<AgentEvent>,
    /// The problem of the agent itself; null if there is none.
    pub broken: Option<Broken>,
    pub evidence: Vec<String>,
    /// Stacks with problems on the agent; 100 at most.
    pub stacks: Vec<StackWhy>,
    /// The number of stacks that it should have or holds.
    pub affected_stacks: u64,
    /// What it has last reported about an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<ReportedUpgrade>,
}

/// What happened to one deployment object on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SequenceHops {
    pub sequence_id: SequenceId,
    pub hops: Hops,
    /// The agent's reports, oldest first.
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
    fn an_unknown_cause_of_a_newer_broker_is_read_as_other() {
        assert_eq!(serde_json::from_str::<Cause>("\"moon_phase\"").unwrap(), Cause::Other);
        assert_eq!(serde_json::from_str::<Cause>("\"unknown_kind\"").unwrap(), Cause::UnknownKind);
    }
}
