//! The facts about agents and stacks that determine a target state.

use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Approval;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstanceId, SequenceId, StackId};
use brokkr_api::{Selector, protocol};
use jiff::Timestamp;

use super::grants::ProjectGrants;
use super::labels::LabelSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFacts {
    pub id: AgentId,
    pub name: String,
    pub status: AgentStatus,
    pub labels: LabelSet,
    pub labels_changed_at: Timestamp,
    /// The Ed25519 key that verifies the agent's assertions.
    pub public_key: [u8; 32],
    pub session: SessionFacts,
    /// The agent should rotate its key.
    pub new_key_wanted: bool,
    /// The stacks that the agent holds: each targeted the agent when this was recorded. Sorted.
    pub holds: Vec<StackId>,
    /// The digest of everything that the agent claims to hold.
    pub holds_digest: Checksum,
    /// Claims that count for nothing: the stack did not target the agent. Sorted, and nearly always empty.
    pub unconfirmed: Box<[StackId]>,
}

impl AgentFacts {
    /// Returns the agent with these held stacks.
    #[must_use]
    pub fn holding(mut self, stacks: Vec<StackId>) -> Self {
        self.hold(stacks, Vec::new());
        self
    }

    /// Replaces the held stacks and the unconfirmed claims: keeps both sorted, and the digest over both current.
    pub fn hold(&mut self, mut stacks: Vec<StackId>, mut unconfirmed: Vec<StackId>) {
        stacks.sort_unstable();
        stacks.dedup();
        unconfirmed.sort_unstable();
        self.holds_digest = protocol::holds_digest(stacks.iter().chain(&unconfirmed).copied());
        (self.holds, self.unconfirmed) = (stacks, unconfirmed.into_boxed_slice());
    }

    #[must_use]
    pub fn holds(&self, stack: StackId) -> bool {
        self.holds.binary_search(&stack).is_ok()
    }

    #[must_use]
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.holds(|key| self.labels.get(key))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    pub count: i64,
    pub instance: Option<InstanceId>,
    pub duplicated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFacts {
    pub project: String,
    pub id: StackId,
    pub name: String,
    pub deleted: bool,
    /// Sorted by agent.
    pub targets: Vec<ExplicitTarget>,
    pub selectors: Vec<SelectorTarget>,
    /// The grants of its project. One copy per project, shared by the snapshot.
    pub grants: Arc<ProjectGrants>,
    /// Approved prunes of the newest object.
    pub approvals: Vec<ApprovalFacts>,
    /// The object that an agent gets is decided by [`super::targeting::released_to`], and need not be this
    /// one.
    pub(super) newest: Option<ObjectFacts>,
}

impl StackFacts {
    /// Returns a stack without grants: the snapshot sets those of its project.
    #[must_use]
    pub fn new(project: String, id: StackId, name: String) -> Self {
        let grants = Arc::new(ProjectGrants::new(true, Vec::new()));
        let (targets, selectors) = (Vec::new(), Vec::new());
        let approvals = Vec::new();
        Self { project, id, name, deleted: false, targets, selectors, grants, approvals, newest: None }
    }

    #[must_use]
    pub fn with_newest(mut self, newest: Option<ObjectFacts>) -> Self {
        self.newest = newest;
        self
    }

    /// Returns whether anything was ever submitted to the stack.
    #[must_use]
    pub fn has_object(&self) -> bool {
        self.newest.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExplicitTarget {
    pub agent: AgentId,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectorTarget {
    pub selector: Selector,
    pub since: Timestamp,
}

/// An approval: how many objects of one version may be pruned, on one agent or (with `None`) on all agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovalFacts {
    pub agent: Option<AgentId>,
    pub approval: Approval,
}

impl ApprovalFacts {
    #[must_use]
    pub fn is_for(&self, agent: AgentId) -> bool {
        self.agent.is_none_or(|one| one == agent)
    }
}

/// A deployment object without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    pub sequence_id: SequenceId,
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub is_deletion_marker: bool,
    /// For a deletion: the resources stay in the clusters.
    pub keeps_resources: bool,
    pub resources: i32,
    pub published_at: Timestamp,
}
