//! What the planner looks at: data only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use brokkr_api::envelope::{Grant, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::report::{Condition, Hops, ObjectNote, Report, Transition};
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use brokkr_manifest::order::Rank;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::seen::{Fingerprint, Owner, Seen, Uid};
use crate::diagnose::Cause;
use crate::resource::{Kind, KindName};

/// One resource of a deployment object, resolved against what the API server serves.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub kind: Kind,
    pub key: Key,
    pub body: Body,
    pub digest: Checksum,
    pub wave: i64,
    pub rank: Rank,
    /// The kind that it makes known, if it is a definition.
    pub defines: Option<KindName>,
    /// Deleted and made anew if a field that cannot be changed has to.
    pub replace: bool,
}

/// An object of a manifest as JSON text: a tree would take ten times the memory, for as long as the stack lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Arc<str>);

impl Body {
    #[must_use]
    pub fn new(object: &Value) -> Self {
        Self(object.to_string().into())
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A deployment object, verified and parsed.
#[derive(Clone, Debug)]
pub struct Content {
    pub sequence: SequenceId,
    pub checksum: Checksum,
    pub objects: BTreeMap<Key, Arc<Wanted>>,
    /// Kinds that a definition in this very content makes known, with that definition.
    pub definitions: HashMap<KindName, Key>,
    pub fetched: Timestamp,
    pub verified: Timestamp,
}

/// The kinds that these objects make known.
#[must_use]
pub fn definitions(objects: &BTreeMap<Key, Arc<Wanted>>) -> HashMap<KindName, Key> {
    let defined = |wanted: &Arc<Wanted>| Some((wanted.defines.clone()?, wanted.key.clone()));
    objects.values().filter_map(defined).collect()
}

/// What the broker wants of a stack, and the content once it was fetched.
#[derive(Clone, Debug)]
pub struct Goal {
    pub target: TargetStack,
    pub content: Option<Arc<Content>>,
    /// What was applied before, until the new content is: its resources are still put back.
    pub fallback: Option<Arc<Content>>,
}

impl Goal {
    /// The resource as it was last applied, be it by this content or by the one before.
    #[must_use]
    pub fn as_applied(&self, key: &Key, digest: Option<Checksum>) -> Option<(&Arc<Content>, &Arc<Wanted>)> {
        [self.content.as_ref(), self.fallback.as_ref()].into_iter().flatten().find_map(|content| {
            let wanted = content.objects.get(key).filter(|wanted| Some(wanted.digest) == digest)?;
            Some((content, wanted))
        })
    }
}

/// Whether a resource was there before Brokkr. Decides what may be done with a Namespace at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Created,
    Adopted,
}

/// One line of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub kind: Kind,
    pub origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Of the manifest's object as it was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Checksum>,
    /// Of our own managedFields entry as the server answered our last apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Fingerprint>,
}

/// What the cluster knows about a stack: the record `stacks.brokkr.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub project: String,
    pub stack: StackId,
    pub stack_name: String,
    /// The highest sequence id that was ever intended. Never goes back.
    pub sequence: SequenceId,
    /// Set while the stack is being removed.
    pub removal: Option<brokkr_api::envelope::Removal>,
    /// What the resources are stamped with.
    pub checksum: Option<Checksum>,
    pub stamp: SequenceId,
    /// The sequence id that was applied completely.
    pub applied: Option<SequenceId>,
    pub inventory: BTreeMap<Key, Entry>,
    /// As whom, and what, was written last: needed while the broker is away.
    pub grant: Option<Grant>,
    pub made: Made,
    pub hops: Hops,
    pub outcome: Option<Outcome>,
    /// What is said of the stack as a whole, each with its reason.
    pub conditions: Vec<Condition>,
    pub ready: u32,
    pub total: u32,
    /// Reports that the broker has not acknowledged yet.
    pub reports: Vec<Report>,
    /// Which run of the agent wrote it.
    pub session: i64,
    /// The resourceVersion to be replaced; none before the record was created.
    pub version: Option<String>,
}

/// The Namespaces and definitions that were absent when a deployment object was first intended: what stands on them
/// was absent, too; and D1 takes these Namespaces back, once, if it fails for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub sequence: SequenceId,
    pub ground: BTreeSet<Key>,
}

/// The last thing that was reported, so that only transitions are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub transition: Transition,
    pub sequence: SequenceId,
    pub reason: String,
    pub message: String,
}

/// Why a step did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    pub reason: String,
    pub message: String,
    /// The server's own wish for how long to wait.
    pub retry_after: Option<std::time::Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// May succeed later without any change.
    Transient,
    /// Will fail again until somebody changes something.
    Permanent,
    /// What it needs is not there: a namespace, or its kind. Comes with an event, not with time.
    Missing,
    /// A field that cannot be changed would have to be.
    Immutable,
    /// The object is not what we thought: look again.
    Conflict,
}

/// A failure that stands, with when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub failure: Failure,
    /// Of an apply, be it a dry run: only another one answers it, whatever a look in between shows.
    pub of_apply: bool,
    pub attempts: u32,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}

/// What this process has done so far for the current goal. Losing it costs requests, never correctness:
/// everything that must survive is in the record.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Answers of the API server about objects that do not carry our label.
    pub looked: HashMap<Key, Option<Seen>>,
    /// What rights are missing; none before that was asked.
    pub lacking: Option<Vec<ObjectNote>>,
    pub validated: HashSet<Key>,
    /// Definitions whose kinds discovery shows.
    pub served: HashSet<Key>,
    pub written: HashSet<Key>,
    /// Have a field to change that cannot be changed, and may be made anew.
    pub replace: HashSet<Key>,
    pub failures: BTreeMap<Key, Standing>,
    /// The same for putting an earlier content back: what becomes of it says nothing about the newest.
    pub not_put_back: BTreeMap<Key, Standing>,
    /// Why the content could not be fetched or read.
    pub fetch: Option<Standing>,
    /// The content that was applied before was asked for.
    pub earlier: bool,
    /// What is inside a namespace or definition and not ours, as listed just before deleting it.
    pub inside: HashMap<Key, Vec<String>>,
    /// Deletions that the server accepted.
    pub deleted: HashSet<Key>,
    /// Left in the cluster on purpose, with the reason.
    pub left: BTreeMap<Key, String>,
    pub waiting_since: Option<Timestamp>,
    /// What the sweep has still to go over.
    pub unswept: BTreeSet<Key>,
    /// How often each object was put back lately.
    pub fights: HashMap<Key, Fight>,
    /// Who fights, as far as the API server tells.
    pub rivals: HashMap<Key, Vec<Rival>>,
    /// Why something is not ready, and when that was asked.
    pub causes: HashMap<Key, (Timestamp, Option<Cause>)>,
    pub repairs: u32,
    pub repairs_reported: Option<Timestamp>,
    pub unready_since: Option<Timestamp>,
}

/// A field manager that changes fields of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    pub manager: String,
    pub fields: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Fight {
    pub rounds: u32,
    pub last: Timestamp,
}

/// What is known of the cluster's live objects without asking.
pub trait Observed {
    fn seen(&self, key: &Key) -> Option<&Seen>;
    /// Whether everything of this kind that carries our label is known.
    fn synced(&self, kind: &KindName) -> bool;
}

/// The other stacks of this agent, as far as they matter to one.
pub trait Neighbours {
    /// Another stack that has this resource in its record, or is about to, and what it means to do with it.
    fn holder(&self, key: &Key) -> Option<Holder>;
    /// Another stack whose newest content names this resource.
    fn heir(&self, key: &Key) -> Option<String>;
    /// Whether another stack's newest content names something that stands on this Namespace or definition: it may put it
    /// there at any moment, also after the inside was listed.
    fn dwells_on(&self, ground: &Key) -> bool;
    /// Whether the newest content of some other stack is still on its way: it may name anything.
    fn unread(&self) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub intent: Intent,
    /// Goes on to the heir: who created a Namespace decides what may become of it.
    pub origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Keeps,
    /// Not known before its newest content is, or before its own request is answered.
    Undecided,
    LetsGo,
}

/// Everything a plan is a function of.
pub struct Situation<'a> {
    pub agent: AgentId,
    pub session: i64,
    pub goal: &'a Goal,
    pub record: Option<&'a Record>,
    /// Whether the broker knows that this agent holds the stack.
    pub held: bool,
    pub progress: &'a Progress,
    pub observed: &'a dyn Observed,
    pub neighbours: &'a dyn Neighbours,
    pub busy: &'a HashSet<Key>,
    pub now: Timestamp,
}
