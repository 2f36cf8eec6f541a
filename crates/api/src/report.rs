//! The reports of agents: only transitions, in batches, each with its own id.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::ids::{AgentId, EventId, SequenceId, StackId};
use crate::reason::{Message, ObjectRef, Reason};

/// The maximum number of reports in one batch.
pub const BATCH: usize = 500;
/// The maximum size of one batch, as JSON. A report with the largest number of objects and the longest messages is far
/// below 100 KiB; most are below 1 KiB.
pub const BATCH_BYTES: usize = 1024 * 1024;
/// The maximum number of objects in one report; the message says how many more there are.
pub const NOTES: usize = 20;

/// What happened to a stack on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Transition {
    /// All objects are applied, and pruned objects are gone.
    Applied,
    /// All applied objects are ready.
    Healthy,
    /// The stack was healthy, and no longer is.
    Degraded,
    /// Applying stopped. The reason and the objects say where.
    Failed,
    /// The agent repaired changes by other clients.
    Repaired,
    /// Other clients changed objects of a stack whose drift is not repaired, or none of these changes is left.
    Drifted,
    /// From now on, the agent leaves the stack or an object of it alone.
    Suspended,
    /// A suspension is over. The objects say what other clients changed meanwhile.
    Resumed,
    /// A removal or prune is blocked, for example by a finalizer; or the grant does not cover the stack.
    Blocked,
    /// All resources of the stack are gone, or were released.
    Removed,
    /// A value from a newer agent: stored and shown, never interpreted.
    #[serde(untagged)]
    #[strum(default, to_string = "{0}")]
    Other(String),
}

impl Transition {
    /// All transitions that this program knows.
    pub const KNOWN: [Self; 10] = [
        Self::Applied,
        Self::Healthy,
        Self::Degraded,
        Self::Failed,
        Self::Repaired,
        Self::Drifted,
        Self::Suspended,
        Self::Resumed,
        Self::Blocked,
        Self::Removed,
    ];

    /// Returns whether it says something about the state of the stack, which later reports change. The others only happen.
    #[must_use]
    pub fn is_state(&self) -> bool {
        !matches!(self, Self::Repaired | Self::Drifted | Self::Suspended | Self::Resumed)
    }
}

/// A string, because agents may be newer than the reader.
impl PartialSchema for Transition {
    fn schema() -> RefOr<Schema> {
        open_set("What happened to a stack on an agent", &["applied", "healthy", "failed", "removed"])
    }
}

impl ToSchema for Transition {}

/// Returns the schema of a set of words that newer peers may extend.
fn open_set(description: &str, examples: &[&str]) -> RefOr<Schema> {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .description(Some(description))
        .examples(examples.iter().copied())
        .into()
}

/// When each hop was passed, for one (agent, stack, sequence id). Hops that are not passed are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hops {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targeted: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Timestamp>,
}

impl Hops {
    /// Merges two sets of hops. If both have a time, the one of `other` wins.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            published: other.published.or(self.published),
            targeted: other.targeted.or(self.targeted),
            released: other.released.or(self.released),
            fetched: other.fetched.or(self.fetched),
            verified: other.verified.or(self.verified),
            applied: other.applied.or(self.applied),
            pruned: other.pruned.or(self.pruned),
            healthy: other.healthy.or(self.healthy),
            reported: other.reported.or(self.reported),
        }
    }

    /// Returns the hops in order, with their names.
    #[must_use]
    pub fn chain(&self) -> [(&'static str, Option<Timestamp>); 9] {
        [
            ("published", self.published),
            ("targeted", self.targeted),
            ("released", self.released),
            ("fetched", self.fetched),
            ("verified", self.verified),
            ("applied", self.applied),
            ("pruned", self.pruned),
            ("healthy", self.healthy),
            ("reported", self.reported),
        ]
    }
}

/// The type of a condition of a stack on an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Display)]
pub enum ConditionKind {
    /// The content is valid, and the agent applies it.
    Accepted,
    /// All objects are applied, and pruned objects are gone.
    Applied,
    /// All applied objects are ready.
    Ready,
    /// Other clients changed objects, and the changes are not repaired yet.
    Drifted,
    /// Another client repeatedly changes the same fields.
    Contested,
    /// A prune waits for an approval, or is blocked.
    PrunePending,
    /// The agent leaves the stack or an object of it alone.
    Suspended,
    /// A value from a newer agent: stored and shown, never interpreted.
    #[serde(untagged)]
    #[strum(to_string = "{0}")]
    Other(String),
}

impl ConditionKind {
    /// All conditions that this program knows, in the order in which they are shown.
    pub const KNOWN: [Self; 7] = [
        Self::Accepted,
        Self::Applied,
        Self::Ready,
        Self::Drifted,
        Self::Contested,
        Self::PrunePending,
        Self::Suspended,
    ];
}

/// A string, because agents may be newer than the reader.
impl PartialSchema for ConditionKind {
    fn schema() -> RefOr<Schema> {
        open_set("An aspect of a stack on an agent", &["Accepted", "Applied", "Ready", "Drifted"])
    }
}

impl ToSchema for ConditionKind {}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, Display, EnumIter,
)]
pub enum ConditionStatus {
    True,
    False,
    #[serde(other)]
    Unknown,
}

/// A condition, with its reason and the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    pub kind: ConditionKind,
    pub status: ConditionStatus,
    #[serde(flatten)]
    pub reason: Reason,
    /// One sentence for people, such as "Deployment shop/web: 2/3 replicas ready".
    #[serde(default)]
    pub message: Message,
    /// The deployment object that it refers to.
    pub sequence_id: SequenceId,
    /// When the status last changed.
    pub since: Timestamp,
}

/// One object that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectNote {
    pub object: ObjectRef,
    #[serde(flatten)]
    pub reason: Reason,
    #[serde(default)]
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// See [`EventId::derive`].
    pub id: EventId,
    pub stack_id: StackId,
    pub sequence_id: SequenceId,
    pub transition: Transition,
    /// When the transition happened. The agent stores this time in its cluster before it sends the report.
    pub at: Timestamp,
    #[serde(default)]
    pub hops: Hops,
    #[serde(flatten)]
    pub reason: Reason,
    /// One sentence for people.
    #[serde(default)]
    pub message: Message,
    #[serde(default)]
    pub objects: Vec<ObjectNote>,
    /// The conditions of the stack on this agent, as of this report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Earlier reports of this stack that were dropped, because the broker was unreachable for too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u32,
    /// Resources that are ready, of `total`.
    #[serde(default)]
    pub ready: u32,
    /// The number of resources; for a removal, the number of removed ones.
    #[serde(default)]
    pub total: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Report {
    /// Derives the id from what identifies the transition.
    #[must_use]
    pub fn derived_id(&self, agent: AgentId) -> EventId {
        EventId::derive(agent, self.stack_id, self.sequence_id, &self.transition.to_string(), self.at)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportBatch {
    pub reports: Vec<Report>,
}

/// The result of a batch. Accepted reports and duplicates are durable. The agent forgets every listed report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportReceipt {
    pub accepted: Vec<EventId>,
    pub duplicates: Vec<EventId>,
    /// Refused and not stored, because the id does not match the content.
    #[serde(default)]
    pub refused: Vec<EventId>,
}
