//! What is known about agents and stacks when a target state is decided.

use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, InstanceId, Labels, SequenceId, StackId};
use brokkr_api::{Selector, protocol};
use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFacts {
    pub id: AgentId,
    pub name: String,
    pub status: AgentStatus,
    pub labels: Labels,
    pub labels_changed_at: Timestamp,
    /// Ed25519, 32 bytes: what the agent's assertions are verified with.
    pub public_key: Vec<u8>,
    pub session: SessionFacts,
    /// Sorted.
    pub holds: Vec<StackId>,
    pub holds_digest: Checksum,
}

impl AgentFacts {
    /// Keeps the held stacks sorted and their digest in step.
    #[must_use]
    pub fn holding(mut self, mut stacks: Vec<StackId>) -> Self {
        stacks.sort_unstable();
        stacks.dedup();
        self.holds_digest = protocol::holds_digest(stacks.iter().copied());
        self.holds = stacks;
        self
    }

    #[must_use]
    pub fn holds(&self, stack: StackId) -> bool {
        self.holds.binary_search(&stack).is_ok()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts {
    pub count: i64,
    pub instance: Option<InstanceId>,
    pub tied: bool,
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
    /// Private to this folder's release rule: ask [`super::targeting::released_to`] instead.
    pub(super) newest: Option<ObjectFacts>,
}

impl StackFacts {
    #[must_use]
    pub fn new(project: String, id: StackId, name: String) -> Self {
        Self { project, id, name, deleted: false, targets: Vec::new(), selectors: Vec::new(), newest: None }
    }

    #[must_use]
    pub fn with_newest(mut self, newest: Option<ObjectFacts>) -> Self {
        self.newest = newest;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplicitTarget {
    pub agent: AgentId,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorTarget {
    pub selector: Selector,
    pub since: Timestamp,
}

/// A deployment object without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    pub sequence_id: SequenceId,
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub is_deletion_marker: bool,
    pub resources: i32,
    pub published_at: Timestamp,
}
