//! The API server, as far as the agent can see it: which objects exist, with which uid and owner.
//!
//! ```text
//! server.rs          the state, and the changes that watches receive
//! server/request.rs  apply, dry run, read, list, delete, release: each with its preconditions and refusals
//! server/fence.rs    the admission policies that limit what the agent may write
//! server/trouble.rs  answers of a server that cannot answer now
//! server/versions.rs the versions of a kind that are served
//! server/within.rs   controllers: terminating namespaces and definitions, finalizers, garbage collection
//! server/others.rs   other users: they create, change and delete objects, and remove or add metadata
//! ```
//!
//! Server-side apply is not reimplemented: an object knows what our manager applied last, and whether someone has since
//! changed a field of ours. Such a change is not computed: the story says when it happens ([`Meddling`]).

mod fence;
mod others;
mod request;
mod trouble;
mod versions;
mod within;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use brokkr_agent::model::{Body, DesiredObject, Fingerprint, SeenObject, Uid};
use brokkr_agent::resource::KindName;
use brokkr_api::AgentId;
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Message, Reason};
use brokkr_health::{Health, HealthState};
use brokkr_manifest::{Key, order};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use others::{FORGED_SEQUENCE, Meddling};
pub use request::{no_answer, overload, refusal};
pub use trouble::Trouble;

use crate::objects::{BETA, defines, namespace_key};

/// The owner of an object, according to its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub agent: Option<String>,
    pub stack: Option<String>,
    pub id: Option<String>,
    pub checksum: Option<String>,
    pub sequence: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub uid: Uid,
    pub version: u64,
    /// The version at which it was created.
    pub born: u64,
    pub since: Timestamp,
    /// Whether it was created by an apply of ours.
    pub made_by_brokkr: bool,
    pub marks: Marks,
    /// Whether someone else annotated it with `brokkr.io/prune: keep`.
    pub kept_by_hand: bool,
    pub owner: Option<Key>,
    pub finalizers: Vec<String>,
    pub deleted_at: Option<Timestamp>,
    /// Whether its kind is accepted; only for definitions.
    pub established: bool,
    /// Whether it serves its kind as `v1beta1`, too; only for definitions.
    pub serves_beta: bool,
    /// When it finished; only for Jobs.
    pub finished_at: Option<Timestamp>,
    /// Whether it finished without success; only for Jobs.
    pub has_failed: bool,
    /// What our manager applied last, without the ownership metadata.
    pub applied: Option<Arc<Applied>>,
    /// How often someone else has changed a field of ours since.
    pub drift: u32,
}

/// A body, as far as this server reads it.
#[derive(Debug, PartialEq, Eq)]
pub struct Applied {
    pub body: Body,
    /// The names of its fields: values do not count, as in managedFields.
    fields: String,
    data: Value,
    keep: bool,
    immutable: bool,
    broken: bool,
    serves_beta: bool,
    ttl: bool,
}

/// A change that a watch on the kind would report.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    pub key: Key,
    pub before: Option<SeenObject>,
    pub after: Option<SeenObject>,
}

#[derive(Clone, Debug)]
pub struct Server {
    pub objects: BTreeMap<Key, Object>,
    pub now: Timestamp,
    /// One counter for all versions.
    pub version: u64,
    /// The delay of every action of a controller.
    pub pace: SignedDuration,
    /// Whether controllers remove no finalizers, except a definition's own.
    pub finalizers_stick: bool,
    /// Objects that are not ready, whatever they contain.
    pub unready: BTreeSet<Key>,
    /// Jobs that fail when they run.
    pub failing_jobs: BTreeSet<Key>,
    /// Every Job that has completed, with what it ran.
    pub completed_jobs: Vec<(Key, Body)>,
    /// Every Job that has failed, with what it ran.
    pub failed_jobs: Vec<(Key, Body)>,
    /// Kinds that the agent has no permission to write.
    pub forbidden: BTreeSet<KindName>,
    /// Kinds that the agent has no permission to watch, and since when.
    pub unwatchable: BTreeMap<KindName, Timestamp>,
    /// The agent that the fence knows; none if there is no fence.
    pub fence: Option<AgentId>,
    /// Whether applies fail with 503, while everything else works.
    pub ailing: bool,
    pub news: Vec<ObjectChange>,
    /// Parsed bodies, by digest.
    read: HashMap<Checksum, Arc<Applied>>,
}

impl Object {
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleted_at.is_some()
    }

    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept_by_hand || self.applied.as_ref().is_some_and(|applied| applied.keep)
    }

    #[must_use]
    pub fn is_marked(&self, agent: &str) -> bool {
        self.marks.agent.as_deref() == Some(agent)
    }

    fn fields(&self) -> Option<Fingerprint> {
        let fields = &self.applied.as_ref()?.fields;
        Some(if self.drift > 0 {
            Fingerprint::of(&format!("{fields} without {}", self.drift))
        } else {
            Fingerprint::of(fields)
        })
    }
}

fn collect(value: &Value, paths: &mut String) {
    if let Some(fields) = value.as_object() {
        for (name, inner) in fields {
            paths.push_str(name);
            paths.push('{');
            collect(inner, paths);
            paths.push('}');
        }
    }
}

impl Applied {
    #[must_use]
    pub fn read(desired: &DesiredObject) -> Self {
        let body = desired.body.to_value();
        let mut fields = String::new();
        collect(&body, &mut fields);
        let data = body["data"].clone();
        let versions = body["spec"]["versions"].as_array();
        Self {
            body: desired.body.clone(),
            fields,
            keep: body["metadata"]["annotations"]["brokkr.io/prune"] == "keep",
            immutable: body["immutable"] == true,
            broken: data.as_object().is_some_and(|data| data.keys().any(|name| name.contains('!'))),
            serves_beta: versions
                .is_some_and(|versions| versions.iter().any(|version| version["name"] == BETA)),
            ttl: body["spec"]["ttlSecondsAfterFinished"].is_u64(),
            data,
        }
    }

    /// Returns whether the API server rejects it as invalid.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether this body may be changed to the next one.
    #[must_use]
    pub fn allows(&self, next: &Self) -> bool {
        !self.immutable || self.data == next.data
    }
}

impl Server {
    /// Returns the body as this server parses it.
    pub fn read(&mut self, desired: &DesiredObject) -> Arc<Applied> {
        self.read.entry(desired.digest).or_insert_with(|| Arc::new(Applied::read(desired))).clone()
    }

    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let mut server = Self {
            objects: BTreeMap::new(),
            now,
            version: 100,
            pace: SignedDuration::from_millis(500),
            finalizers_stick: false,
            unready: BTreeSet::new(),
            failing_jobs: BTreeSet::new(),
            completed_jobs: Vec::new(),
            failed_jobs: Vec::new(),
            forbidden: BTreeSet::new(),
            unwatchable: BTreeMap::new(),
            fence: None,
            ailing: false,
            news: Vec::new(),
            read: HashMap::new(),
        };
        server.insert(&namespace_key("default"), |_| {});
        server.news.clear();
        server
    }

    /// Returns the object as `GET` would show it.
    #[must_use]
    pub fn seen(&self, key: &Key) -> Option<SeenObject> {
        let object = self.objects.get(key)?;
        Some(SeenObject {
            uid: object.uid.clone(),
            version: object.version,
            agent: object.marks.agent.as_deref().map(Uid::from),
            stack: object.marks.stack.as_deref().map(Uid::from),
            names_itself: object.marks.id == Some(key.to_string()),
            keep: object.is_kept(),
            has_owner: object.owner.is_some(),
            deleting: object.is_deleting(),
            finalizers: object.finalizers.clone(),
            fields: object.fields(),
            health: self.health(key, object),
            later: None,
            sequence: object.marks.sequence.as_deref().and_then(|text| text.parse().ok()),
            completed: object.finished_at.is_some() && !object.has_failed,
        })
    }

    fn health(&self, key: &Key, object: &Object) -> Arc<Health> {
        let is_definition = KindName::of(key).is_definition();
        let unready =
            object.is_deleting() || is_definition && !object.established || self.unready.contains(key);
        let (state, reason) = match unready {
            _ if object.has_failed => (HealthState::Failed, Reason::BackoffLimitExceeded),
            true => (HealthState::Progressing, Reason::None),
            false => (HealthState::Ready, Reason::None),
        };
        Arc::new(Health { state, reason, message: Message::default() })
    }

    /// Returns whether the kind is in discovery and its requests are answered.
    #[must_use]
    pub fn is_served(&self, kind: &KindName) -> bool {
        // Discovery shows it a moment after it is established.
        order::is_built_in(&kind.group)
            || self.objects.iter().any(|(key, object)| {
                defines(key, kind) && object.established && object.since + self.pace * 2 <= self.now
            })
    }

    pub(crate) fn insert(&mut self, key: &Key, apply_metadata: impl FnOnce(&mut Object)) {
        self.version += 1;
        let mut object = Object {
            uid: Uid::from(format!("uid-{}", self.version)),
            version: self.version,
            born: self.version,
            since: self.now,
            made_by_brokkr: false,
            marks: Marks::default(),
            kept_by_hand: false,
            owner: None,
            finalizers: Vec::new(),
            deleted_at: None,
            established: false,
            serves_beta: false,
            finished_at: None,
            has_failed: false,
            applied: None,
            drift: 0,
        };
        apply_metadata(&mut object);
        self.objects.insert(key.clone(), object);
        self.notify_watches(key, None);
    }

    /// Changes an object; without a difference there is no new version and no event.
    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Object)) {
        let before = self.seen(key);
        let Some(object) = self.objects.get_mut(key) else { return };
        let earlier = object.clone();
        change(object);
        if *object != earlier {
            self.version += 1;
            object.version = self.version;
            self.notify_watches(key, before);
        }
    }

    pub(crate) fn drop_object(&mut self, key: &Key) {
        let before = self.seen(key);
        if self.objects.remove(key).is_some() {
            self.version += 1;
            self.notify_watches(key, before);
        }
    }

    fn notify_watches(&mut self, key: &Key, before: Option<SeenObject>) {
        let after = self.seen(key);
        self.news.push(ObjectChange { key: key.clone(), before, after });
    }

    /// Returns the objects in this namespace, or of this definition.
    pub fn inside<'a>(&'a self, prerequisite: &'a Key) -> impl Iterator<Item = (&'a Key, &'a Object)> {
        let namespace = KindName::of(prerequisite).is_namespace();
        self.objects.iter().filter(move |(key, _)| {
            if namespace {
                key.namespace.as_deref() == Some(&prerequisite.name)
            } else {
                defines(prerequisite, &KindName::of(key))
            }
        })
    }
}
