//! The facts about agents and stacks that determine a target state.

use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Approval;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::JobRef;
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::suspensions::Suspended;
use brokkr_api::{AgentId, InstanceId, SequenceId, StackId, UpgradeId};
use brokkr_api::{Selector, protocol};
use bytes::Bytes;
use jiff::Timestamp;

use super::grants::ProjectGrants;
use super::labels::LabelSet;
use super::release::{Release, Widening};
use super::windows::Windows;

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
    /// What is known about upgrades of the agent. Absent if its owner allows none, and it has reported none.
    pub upgrade: Option<Box<AgentUpgradeFacts>>,
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
    pub fn upgrade(&self) -> AgentUpgradeFacts {
        self.upgrade.as_deref().copied().unwrap_or_default()
    }

    #[must_use]
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.holds(|key| self.labels.get(key))
    }
}

/// What is known about upgrades of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentUpgradeFacts {
    /// Since when its owner allows them.
    pub allowed_since: Option<Timestamp>,
    /// The last upgrade that it has reported a step of, and is not offered again.
    pub reported: Option<UpgradeId>,
    /// Whether that step is an end.
    pub has_ended: bool,
}

impl AgentUpgradeFacts {
    /// Returns the facts as an agent has them: nothing takes no memory.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
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
    /// Approved prunes of the versions that agents may get.
    pub approvals: Vec<ApprovalFacts>,
    /// The Jobs that run again with a version. Nearly always empty.
    pub reruns: Vec<RerunFacts>,
    /// What agents leave alone. Nearly always empty.
    pub suspensions: Vec<SuspensionFacts>,
    /// How the health of custom kinds is read. Nearly always absent.
    pub health_rules: Option<Box<HealthRuleFacts>>,
    pub drift: DriftPolicy,
    /// When agents may begin versions. One copy, shared by all stacks of the snapshot.
    pub windows: Arc<Windows>,
    /// The version that every agent gets, unless a rollout releases a newer one to it: see
    /// [`super::release::released_to`].
    pub(super) base: Option<ObjectFacts>,
    /// Versions above the base, in ascending order. The last one is being rolled out, or was stopped. Nearly always empty.
    pub(super) releases: Box<[Release]>,
    /// The release of the base to agents that the stack has gained, while not all of them get it. Nearly always absent.
    pub(super) widening: Option<Box<Widening>>,
}

impl StackFacts {
    /// Returns a stack without grants: the snapshot sets those of its project.
    #[must_use]
    pub fn new(project: String, id: StackId, name: String) -> Self {
        let grants = Arc::new(ProjectGrants::new(true, Vec::new()));
        let (targets, selectors) = (Vec::new(), Vec::new());
        let (approvals, releases) = (Vec::new(), Box::default());
        Self {
            project,
            id,
            name,
            deleted: false,
            targets,
            selectors,
            grants,
            approvals,
            reruns: Vec::new(),
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            windows: Arc::default(),
            base: None,
            releases,
            widening: None,
        }
    }

    #[must_use]
    pub fn with_base(mut self, base: Option<ObjectFacts>) -> Self {
        self.base = base;
        self
    }

    #[must_use]
    pub fn with_releases(mut self, releases: Vec<Release>) -> Self {
        self.releases = releases.into_boxed_slice();
        self
    }

    #[must_use]
    pub fn with_widening(mut self, widening: Option<Widening>) -> Self {
        self.widening = widening.map(Box::new);
        self
    }

    /// Returns the versions above the base, in ascending order.
    #[must_use]
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// Returns the release of the base to agents that the stack has gained.
    #[must_use]
    pub fn widening(&self) -> Option<&Widening> {
        self.widening.as_deref()
    }

    /// Returns whether a rollout decides what agents get. If not, every agent gets the base.
    #[must_use]
    pub fn has_rollout(&self) -> bool {
        !self.releases.is_empty() || self.widening.is_some()
    }

    /// Returns the version that every agent gets which no rollout concerns.
    #[must_use]
    pub fn base(&self) -> Option<&ObjectFacts> {
        self.base.as_ref()
    }

    /// Returns the versions that agents may have.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectFacts> {
        self.releases.iter().map(|release| &release.object).chain(&self.base)
    }

    /// Returns the newest version, whether or not any agent gets it.
    #[must_use]
    pub fn newest(&self) -> Option<&ObjectFacts> {
        self.releases.last().map(|release| &release.object).or(self.base.as_ref())
    }

    /// Returns the version with this sequence id, if agents may have it.
    #[must_use]
    pub fn object(&self, sequence_id: SequenceId) -> Option<&ObjectFacts> {
        self.objects().find(|object| object.sequence_id == sequence_id)
    }

    /// Returns whether both have the same base, which is no deletion.
    #[must_use]
    pub fn has_base_of(&self, other: &Self) -> bool {
        self.base == other.base && self.base.is_none_or(|base| !base.is_deletion_marker)
    }

    /// Returns the suspensions that apply to the agent.
    pub fn suspensions_on<'a>(&'a self, agent: &'a AgentFacts) -> impl Iterator<Item = &'a Suspended> {
        self.suspensions.iter().filter(|one| one.is_for(agent)).map(|one| &one.suspended)
    }

    /// Returns whether anything was ever submitted to the stack.
    #[must_use]
    pub fn has_object(&self) -> bool {
        self.newest().is_some()
    }

    /// Replaces which version agents get, and whether the stack is deleted.
    pub fn release_as(&mut self, other: &Self) {
        (self.deleted, self.base) = (other.deleted, other.base);
        self.releases.clone_from(&other.releases);
        self.widening.clone_from(&other.widening);
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

/// A suspension of a stack that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionFacts {
    /// Only on this agent.
    pub agent: Option<AgentId>,
    /// Only on the agents with these labels.
    pub selector: Option<Selector>,
    pub suspended: Suspended,
}

impl SuspensionFacts {
    #[must_use]
    pub fn is_for(&self, agent: &AgentFacts) -> bool {
        self.agent.is_none_or(|one| one == agent.id)
            && self.selector.as_ref().is_none_or(|selector| agent.matches(selector))
    }
}

/// Rules for the health of custom kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRuleFacts {
    pub checksum: Checksum,
    /// Exactly the bytes that agents get. They are few, so that agents are answered from memory.
    pub rules: Bytes,
}

impl HealthRuleFacts {
    #[must_use]
    pub fn new(rules: String) -> Self {
        Self { checksum: Checksum::of(rules.as_bytes()), rules: rules.into() }
    }
}

/// The Jobs that run again with a version.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct RerunFacts {
    pub sequence_id: SequenceId,
    pub jobs: Vec<JobRef>,
}

/// A deployment object without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct ObjectFacts {
    pub sequence_id: SequenceId,
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub is_deletion_marker: bool,
    /// For a deletion: the resources stay in the clusters.
    pub keeps_resources: bool,
    /// Begins at any time, whatever the windows say.
    pub is_urgent: bool,
    /// For how long its waves wait for each other, if they do.
    pub wave_wait_seconds: Option<u32>,
    pub resources: i32,
    pub published_at: Timestamp,
}
