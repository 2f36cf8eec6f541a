//! Requests with their preconditions, which are sent to the simulated and to the real API server; the results must agree.
//!
//! Each entry uses its own namespace, so that all entries can run on one shared cluster.

mod fence;

use brokkr_agent::model::{FailureClass, SeenObject, StepResult, Uid as Known};
use brokkr_agent::ownership::Stamp;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use uuid::Uuid;

use crate::objects::{Item, WIDGET, key, namespace_key};
use crate::server::{Meddling, Server};

pub use fence::fenced;

/// The state before the request.
#[derive(Clone, Debug)]
pub enum Given {
    /// Another client created the object.
    Foreign(Item),
    /// The agent applied the object.
    Applied(Item),
    /// Another client created a definition, and its kind is served.
    Served(Item),
    /// The first object is a child of the second.
    Child(Key, Key),
    /// Another client added a finalizer.
    Held(Key),
    /// Another client deleted the object. It still exists if it, or an object in it, has a finalizer.
    Deleted(Key),
    /// Another client removed our label.
    Unlabelled(Key),
    /// Another client set the annotation `brokkr.io/sequence`.
    Sequence(Key, String),
    /// Another agent applied the object.
    OfAnotherAgent(Item),
}

/// The uid in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uid {
    None,
    /// The uid of the existing object.
    Right,
    Wrong,
}

#[derive(Clone, Debug)]
pub enum CorpusRequest {
    Apply(Item, Uid),
    DryRun(Item, Uid),
    ReadObject(Key),
    ListContained(Key),
    Delete(Key, Uid),
    Release(Key, Uid),
}

impl CorpusRequest {
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Apply(item, _) | Self::DryRun(item, _) => &item.key,
            Self::ReadObject(key)
            | Self::ListContained(key)
            | Self::Delete(key, _)
            | Self::Release(key, _) => key,
        }
    }

    /// Returns the uid to send, given the existing object.
    #[must_use]
    pub fn uid(&self, existing: Option<&SeenObject>) -> Option<Known> {
        match self {
            Self::Apply(_, uid) | Self::DryRun(_, uid) | Self::Delete(_, uid) | Self::Release(_, uid) => {
                match uid {
                    Uid::None => None,
                    Uid::Right => existing.map(|seen| seen.uid.clone()),
                    Uid::Wrong => Some(Known::from("00000000-0000-4000-8000-000000000000")),
                }
            }
            Self::ReadObject(_) | Self::ListContained(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub namespace: String,
    pub given: Vec<Given>,
    pub request: CorpusRequest,
}

/// The parts of the result that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub result: String,
    /// The object after the request, if it exists.
    pub after: Option<ObjectAfter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAfter {
    pub same: bool,
    pub rewritten: bool,
    pub is_ours: bool,
    pub deleting: bool,
    pub finalizers: Vec<String>,
}

#[must_use]
pub fn verdict(result: &StepResult, before: Option<&SeenObject>, after: Option<&SeenObject>) -> Verdict {
    let result = match result {
        StepResult::Applied { created: true, .. } => "created".to_owned(),
        StepResult::Applied { .. } => "updated".to_owned(),
        StepResult::Valid { exists } => format!("valid, {}", if *exists { "there" } else { "new" }),
        StepResult::ObjectRead(seen) => if seen.is_some() { "found" } else { "not found" }.to_owned(),
        StepResult::Contained(foreign) => format!("{} inside", foreign.len()),
        StepResult::Failed(failure) => {
            let class = match failure.class {
                FailureClass::Transient => "try again",
                FailureClass::Permanent => "final",
                FailureClass::Missing => "missing",
                FailureClass::Immutable => "immutable",
                FailureClass::Conflict => "read again",
            };
            format!("{class}: {}", failure.reason.code())
        }
        done => format!("{done:?}"),
    };
    let after = after.map(|after| ObjectAfter {
        same: before.is_some_and(|before| before.uid == after.uid),
        rewritten: before.is_some_and(|before| before.version != after.version),
        is_ours: after.agent.is_some() && after.stack.is_some() && after.names_itself,
        deleting: after.deleting,
        finalizers: after.finalizers.clone(),
    });
    Verdict { result, after }
}

/// Returns the stamp of all applied objects.
#[must_use]
pub fn stamp() -> Stamp {
    Stamp {
        agent: AgentId(Uuid::from_u128(0xc0)),
        stack: StackId(Uuid::from_u128(0xc1)),
        checksum: Checksum::of(b"corpus"),
        sequence: SequenceId(1),
    }
}

/// Runs one entry against the simulated server.
#[must_use]
pub fn play(server: &mut Server, entry: &Entry) -> Verdict {
    server.meddle(&namespace_key(&entry.namespace), &Meddling::Create);
    for given in &entry.given {
        match given {
            Given::Foreign(item) => server.meddle(&item.key, &Meddling::Create),
            Given::Applied(item) => drop(server.apply(&item.desired(), None, &stamp())),
            Given::Served(item) => {
                server.meddle(&item.key, &Meddling::Create);
                while let Some(at) = server.next_event() {
                    server.now = at;
                    server.settle();
                }
            }
            Given::Child(child, owner) => server.meddle(child, &Meddling::CreateChildOf(owner.clone())),
            Given::Held(key) => server.meddle(key, &Meddling::Hold),
            Given::Deleted(key) => server.meddle(key, &Meddling::Delete),
            Given::Unlabelled(key) => server.meddle(key, &Meddling::TakeLabelOff),
            Given::Sequence(key, sequence) => server.meddle(key, &Meddling::SetSequence(sequence.clone())),
            Given::OfAnotherAgent(item) => server.meddle(&item.key, &Meddling::CreateForAnother),
        }
    }
    let key = entry.request.key();
    let before = server.seen(key);
    let uid = entry.request.uid(before.as_ref());
    let named = uid.clone().unwrap_or_else(|| Known::from(""));
    let result = match &entry.request {
        CorpusRequest::Apply(item, _) => server.apply(&item.desired(), uid.as_ref(), &stamp()),
        CorpusRequest::DryRun(item, _) => server.dry_run(&item.desired(), uid.as_ref(), &stamp()),
        CorpusRequest::ReadObject(key) => server.read_object(key),
        CorpusRequest::ListContained(key) => server.list_contained(key),
        CorpusRequest::Delete(key, _) => server.delete(key, &named),
        CorpusRequest::Release(key, _) => server.release(key, &named),
    };
    verdict(&result, before.as_ref(), server.seen(key).as_ref())
}

/// The objects of one entry, in its own namespace.
struct Fixture {
    name: String,
    map: Item,
    other: Item,
    definition: Item,
    widget: Item,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let group = format!("{name}.example.com");
        Self {
            name: name.to_owned(),
            map: Item::new(&format!("/ConfigMap/{name}/one"), 1),
            other: Item::new(&format!("/ConfigMap/{name}/two"), 1),
            definition: Item::new(
                &format!("apiextensions.k8s.io/CustomResourceDefinition//widgets.{group}"),
                1,
            ),
            widget: Item::new(&format!("{group}/{WIDGET}/{name}/one"), 1),
        }
    }

    fn changed(&self) -> Item {
        Item { value: 2, ..self.map.clone() }
    }

    fn broken(&self) -> Item {
        Item { broken: true, ..self.map.clone() }
    }

    /// Returns the steps to a namespace that stays in deletion, because an object in it has a finalizer.
    fn terminating_namespace(&self) -> Vec<Given> {
        let held = self.other.key.clone();
        vec![Given::Foreign(self.other.clone()), Given::Held(held), Given::Deleted(namespace_key(&self.name))]
    }

    fn held(&self) -> Vec<Given> {
        vec![Given::Applied(self.map.clone()), Given::Held(self.map.key.clone())]
    }

    fn deleting(&self) -> Vec<Given> {
        let mut given = self.held();
        given.push(Given::Deleted(self.map.key.clone()));
        given
    }

    fn terminating_definition(&self) -> Vec<Given> {
        vec![
            Given::Served(self.definition.clone()),
            Given::Applied(self.widget.clone()),
            Given::Held(self.widget.key.clone()),
            Given::Deleted(self.definition.key.clone()),
        ]
    }
}

type Case = (&'static str, fn(&Fixture) -> Vec<Given>, fn(&Fixture) -> CorpusRequest);

/// Returns the whole corpus; every namespace begins with `prefix`.
#[must_use]
pub fn corpus(prefix: &str) -> Vec<Entry> {
    entries(prefix, CASES)
}

fn entries(prefix: &str, cases: &[Case]) -> Vec<Entry> {
    let entries = cases.iter().enumerate().map(|(number, &(name, given, request))| {
        let fixture = Fixture::new(&format!("{prefix}-{number}"));
        Entry { name, given: given(&fixture), request: request(&fixture), namespace: fixture.name }
    });
    entries.collect()
}

fn nothing(_: &Fixture) -> Vec<Given> {
    Vec::new()
}

fn foreign(fixture: &Fixture) -> Vec<Given> {
    vec![Given::Foreign(fixture.map.clone())]
}

fn applied(fixture: &Fixture) -> Vec<Given> {
    vec![Given::Applied(fixture.map.clone())]
}

const CASES: &[Case] = &[
    ("apply an absent object", nothing, |fixture| CorpusRequest::Apply(fixture.map.clone(), Uid::None)),
    ("apply an absent object, naming a uid", nothing, |fixture| {
        CorpusRequest::Apply(fixture.map.clone(), Uid::Wrong)
    }),
    ("apply the same again", applied, |fixture| CorpusRequest::Apply(fixture.map.clone(), Uid::None)),
    ("apply the same again, naming its uid", applied, |fixture| {
        CorpusRequest::Apply(fixture.map.clone(), Uid::Right)
    }),
    ("apply a change", applied, |fixture| CorpusRequest::Apply(fixture.changed(), Uid::Right)),
    ("apply a change, naming another uid", applied, |fixture| {
        CorpusRequest::Apply(fixture.changed(), Uid::Wrong)
    }),
    ("apply over a foreign object", foreign, |fixture| CorpusRequest::Apply(fixture.map.clone(), Uid::None)),
    ("apply over a foreign object, naming its uid", foreign, |fixture| {
        CorpusRequest::Apply(fixture.map.clone(), Uid::Right)
    }),
    ("apply to an object in deletion", Fixture::deleting, |fixture| {
        CorpusRequest::Apply(fixture.changed(), Uid::None)
    }),
    ("apply to an object in deletion, naming its uid", Fixture::deleting, |fixture| {
        CorpusRequest::Apply(fixture.changed(), Uid::Right)
    }),
    ("apply in a namespace that does not exist", nothing, |fixture| {
        CorpusRequest::Apply(Item::new(&format!("/ConfigMap/{}-nowhere/one", fixture.name), 1), Uid::None)
    }),
    ("apply an absent object in a terminating namespace", Fixture::terminating_namespace, |fixture| {
        CorpusRequest::Apply(fixture.map.clone(), Uid::None)
    }),
    (
        "apply an object with a finalizer in a terminating namespace",
        Fixture::terminating_namespace,
        |fixture| CorpusRequest::Apply(fixture.other.clone(), Uid::Right),
    ),
    ("apply a terminating namespace", Fixture::terminating_namespace, |fixture| {
        CorpusRequest::Apply(Item::new(&format!("/Namespace//{}", fixture.name), 1), Uid::Right)
    }),
    ("apply an invalid object", nothing, |fixture| CorpusRequest::Apply(fixture.broken(), Uid::None)),
    ("apply an invalid object over an existing one", applied, |fixture| {
        CorpusRequest::Apply(fixture.broken(), Uid::Right)
    }),
    (
        "apply a change to an immutable object",
        |fixture| vec![Given::Applied(Item { immutable: true, ..fixture.map.clone() })],
        |fixture| CorpusRequest::Apply(Item { immutable: true, ..fixture.changed() }, Uid::Right),
    ),
    ("dry run of an absent object", nothing, |fixture| CorpusRequest::DryRun(fixture.map.clone(), Uid::None)),
    ("dry run of an absent object, naming a uid", nothing, |fixture| {
        CorpusRequest::DryRun(fixture.map.clone(), Uid::Wrong)
    }),
    ("dry run of a change", applied, |fixture| CorpusRequest::DryRun(fixture.changed(), Uid::Right)),
    ("dry run of a change, naming another uid", applied, |fixture| {
        CorpusRequest::DryRun(fixture.changed(), Uid::Wrong)
    }),
    ("dry run of an invalid object", nothing, |fixture| CorpusRequest::DryRun(fixture.broken(), Uid::None)),
    ("dry run in a namespace that does not exist", nothing, |fixture| {
        CorpusRequest::DryRun(Item::new(&format!("/ConfigMap/{}-nowhere/one", fixture.name), 1), Uid::None)
    }),
    ("dry run in a terminating namespace", Fixture::terminating_namespace, |fixture| {
        CorpusRequest::DryRun(fixture.map.clone(), Uid::None)
    }),
    ("apply of an unknown kind", nothing, |fixture| CorpusRequest::Apply(fixture.widget.clone(), Uid::None)),
    ("dry run of an unknown kind", nothing, |fixture| {
        CorpusRequest::DryRun(fixture.widget.clone(), Uid::None)
    }),
    ("read an unknown kind", nothing, |fixture| CorpusRequest::ReadObject(fixture.widget.key.clone())),
    ("delete of an unknown kind", nothing, |fixture| {
        CorpusRequest::Delete(fixture.widget.key.clone(), Uid::Wrong)
    }),
    (
        "apply of a kind that was defined before",
        |fixture| vec![Given::Served(fixture.definition.clone())],
        |fixture| CorpusRequest::Apply(fixture.widget.clone(), Uid::None),
    ),
    ("apply of a kind with a terminating definition", Fixture::terminating_definition, |fixture| {
        let name = format!("{}/two", fixture.widget.key.to_string().trim_end_matches("/one"));
        CorpusRequest::Apply(Item { key: key(&name), ..fixture.widget.clone() }, Uid::None)
    }),
    ("apply of a terminating definition", Fixture::terminating_definition, |fixture| {
        CorpusRequest::Apply(fixture.definition.clone(), Uid::Right)
    }),
    ("read an absent object", nothing, |fixture| CorpusRequest::ReadObject(fixture.map.key.clone())),
    ("read a foreign object", foreign, |fixture| CorpusRequest::ReadObject(fixture.map.key.clone())),
    ("delete", applied, |fixture| CorpusRequest::Delete(fixture.map.key.clone(), Uid::Right)),
    ("delete, naming another uid", applied, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Wrong)
    }),
    ("delete an absent object", nothing, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Wrong)
    }),
    ("delete an object with a finalizer", Fixture::held, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Right)
    }),
    ("delete an object in deletion", Fixture::deleting, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Right)
    }),
    ("delete a terminating namespace", Fixture::terminating_namespace, |fixture| {
        CorpusRequest::Delete(namespace_key(&fixture.name), Uid::Right)
    }),
    (
        "delete a definition with a finalizer on a resource",
        |fixture| Fixture::terminating_definition(fixture)[..3].to_vec(),
        |fixture| CorpusRequest::Delete(fixture.definition.key.clone(), Uid::Right),
    ),
    ("release", applied, |fixture| CorpusRequest::Release(fixture.map.key.clone(), Uid::Right)),
    ("release, naming another uid", applied, |fixture| {
        CorpusRequest::Release(fixture.map.key.clone(), Uid::Wrong)
    }),
    ("release an absent object", nothing, |fixture| {
        CorpusRequest::Release(fixture.map.key.clone(), Uid::Wrong)
    }),
    ("release a foreign object", foreign, |fixture| {
        CorpusRequest::Release(fixture.map.key.clone(), Uid::Right)
    }),
    ("release an object in deletion", Fixture::deleting, |fixture| {
        CorpusRequest::Release(fixture.map.key.clone(), Uid::Right)
    }),
    ("list an empty namespace", nothing, |fixture| {
        CorpusRequest::ListContained(namespace_key(&fixture.name))
    }),
    ("list a namespace with objects", foreign, |fixture| {
        CorpusRequest::ListContained(namespace_key(&fixture.name))
    }),
    (
        "list a namespace with a child",
        |fixture| {
            let (child, owner) = (fixture.other.key.clone(), fixture.map.key.clone());
            vec![Given::Foreign(fixture.map.clone()), Given::Child(child, owner)]
        },
        |fixture| CorpusRequest::ListContained(namespace_key(&fixture.name)),
    ),
    (
        "list a definition",
        |fixture| Fixture::terminating_definition(fixture)[..2].to_vec(),
        |fixture| CorpusRequest::ListContained(fixture.definition.key.clone()),
    ),
];
