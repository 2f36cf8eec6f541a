//! Requests with preconditions, as data: played against this server and against the real one, which must agree.
//!
//! Each entry has a namespace of its own, so that all can be played on one shared cluster.

use brokkr_agent::model::{FailureClass, SeenObject, StepResult, Uid as Known};
use brokkr_agent::ownership::Stamp;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use uuid::Uuid;

use crate::objects::{Item, WIDGET, key, namespace_key};
use crate::server::{Meddling, Server};

/// What is there before the request.
#[derive(Clone, Debug)]
pub enum Given {
    /// Someone else created it.
    Foreign(Item),
    /// The agent applied it.
    Applied(Item),
    /// Someone else created a definition, and its kind is served.
    Served(Item),
    /// It is the child of the other.
    Child(Key, Key),
    /// Someone else added a finalizer.
    Held(Key),
    /// Someone else deleted it; if it is held, or a namespace with something held inside, it is still there.
    Deleted(Key),
}

/// Which uid a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uid {
    None,
    /// That of the object that is there.
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

    /// The uid to name, given what is there.
    #[must_use]
    pub fn uid(&self, there: Option<&SeenObject>) -> Option<Known> {
        match self {
            Self::Apply(_, uid) | Self::DryRun(_, uid) | Self::Delete(_, uid) | Self::Release(_, uid) => {
                match uid {
                    Uid::None => None,
                    Uid::Right => there.map(|seen| seen.uid.clone()),
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
    pub home: String,
    pub given: Vec<Given>,
    pub ask: CorpusRequest,
}

/// What came of it, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub answer: String,
    /// Afterwards: whether it is there, and then whether it is the same, untouched, marked as ours, on its way out.
    pub after: Option<After>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    pub same: bool,
    pub rewritten: bool,
    pub marked: bool,
    pub deleting: bool,
    pub finalizers: Vec<String>,
}

#[must_use]
pub fn verdict(answer: &StepResult, before: Option<&SeenObject>, after: Option<&SeenObject>) -> Verdict {
    let answer = match answer {
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
    let after = after.map(|after| After {
        same: before.is_some_and(|before| before.uid == after.uid),
        rewritten: before.is_some_and(|before| before.version != after.version),
        marked: after.agent.is_some() && after.stack.is_some() && after.names_itself,
        deleting: after.deleting,
        finalizers: after.finalizers.clone(),
    });
    Verdict { answer, after }
}

/// The stamp that all of it is applied with.
#[must_use]
pub fn stamp() -> Stamp {
    Stamp {
        agent: AgentId(Uuid::from_u128(0xc0)),
        stack: StackId(Uuid::from_u128(0xc1)),
        checksum: Checksum::of(b"corpus"),
        sequence: SequenceId(1),
    }
}

/// Plays one entry against the simulated server.
#[must_use]
pub fn play(server: &mut Server, entry: &Entry) -> Verdict {
    server.meddle(&namespace_key(&entry.home), &Meddling::Create);
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
        }
    }
    let key = entry.ask.key();
    let before = server.seen(key);
    let uid = entry.ask.uid(before.as_ref());
    let named = uid.clone().unwrap_or_else(|| Known::from(""));
    let answer = match &entry.ask {
        CorpusRequest::Apply(item, _) => server.apply(&item.desired(), uid.as_ref(), &stamp()),
        CorpusRequest::DryRun(item, _) => server.dry_run(&item.desired(), uid.as_ref(), &stamp()),
        CorpusRequest::ReadObject(key) => server.read_object(key),
        CorpusRequest::ListContained(key) => server.list_contained(key),
        CorpusRequest::Delete(key, _) => server.delete(key, &named),
        CorpusRequest::Release(key, _) => server.release(key, &named),
    };
    verdict(&answer, before.as_ref(), server.seen(key).as_ref())
}

/// Everything in one namespace of its own.
struct Home {
    name: String,
    map: Item,
    other: Item,
    definition: Item,
    widget: Item,
}

impl Home {
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

    /// A namespace that is on its way out and cannot go, because something inside is held.
    fn ending(&self) -> Vec<Given> {
        let held = self.other.key.clone();
        vec![Given::Foreign(self.other.clone()), Given::Held(held), Given::Deleted(namespace_key(&self.name))]
    }

    fn held(&self) -> Vec<Given> {
        vec![Given::Applied(self.map.clone()), Given::Held(self.map.key.clone())]
    }

    fn leaving(&self) -> Vec<Given> {
        let mut given = self.held();
        given.push(Given::Deleted(self.map.key.clone()));
        given
    }

    fn ending_definition(&self) -> Vec<Given> {
        vec![
            Given::Served(self.definition.clone()),
            Given::Applied(self.widget.clone()),
            Given::Held(self.widget.key.clone()),
            Given::Deleted(self.definition.key.clone()),
        ]
    }
}

type Line = (&'static str, fn(&Home) -> Vec<Given>, fn(&Home) -> CorpusRequest);

/// The whole corpus, with every namespace beginning with `prefix`.
#[must_use]
pub fn corpus(prefix: &str) -> Vec<Entry> {
    let entries = LINES.iter().enumerate().map(|(number, &(name, given, ask))| {
        let home = Home::new(&format!("{prefix}-{number}"));
        Entry { name, given: given(&home), ask: ask(&home), home: home.name }
    });
    entries.collect()
}

fn nothing(_: &Home) -> Vec<Given> {
    Vec::new()
}

fn foreign(home: &Home) -> Vec<Given> {
    vec![Given::Foreign(home.map.clone())]
}

fn applied(home: &Home) -> Vec<Given> {
    vec![Given::Applied(home.map.clone())]
}

const LINES: &[Line] = &[
    ("apply what is absent", nothing, |home| CorpusRequest::Apply(home.map.clone(), Uid::None)),
    ("apply what is absent, naming a uid", nothing, |home| {
        CorpusRequest::Apply(home.map.clone(), Uid::Wrong)
    }),
    ("apply the same again", applied, |home| CorpusRequest::Apply(home.map.clone(), Uid::None)),
    ("apply the same again, naming its uid", applied, |home| {
        CorpusRequest::Apply(home.map.clone(), Uid::Right)
    }),
    ("apply a change", applied, |home| CorpusRequest::Apply(home.changed(), Uid::Right)),
    ("apply a change, naming another uid", applied, |home| CorpusRequest::Apply(home.changed(), Uid::Wrong)),
    ("apply over what another owns", foreign, |home| CorpusRequest::Apply(home.map.clone(), Uid::None)),
    ("apply over what is somebody's, naming its uid", foreign, |home| {
        CorpusRequest::Apply(home.map.clone(), Uid::Right)
    }),
    ("apply to what is on its way out", Home::leaving, |home| {
        CorpusRequest::Apply(home.changed(), Uid::None)
    }),
    ("apply to what is on its way out, naming its uid", Home::leaving, |home| {
        CorpusRequest::Apply(home.changed(), Uid::Right)
    }),
    ("apply in a namespace that is not there", nothing, |home| {
        CorpusRequest::Apply(Item::new(&format!("/ConfigMap/{}-nowhere/one", home.name), 1), Uid::None)
    }),
    ("apply what is absent in a namespace that ends", Home::ending, |home| {
        CorpusRequest::Apply(home.map.clone(), Uid::None)
    }),
    ("apply what is held in a namespace that ends", Home::ending, |home| {
        CorpusRequest::Apply(home.other.clone(), Uid::Right)
    }),
    ("apply a namespace that ends", Home::ending, |home| {
        CorpusRequest::Apply(Item::new(&format!("/Namespace//{}", home.name), 1), Uid::Right)
    }),
    ("apply what is broken", nothing, |home| CorpusRequest::Apply(home.broken(), Uid::None)),
    ("apply what is broken over what is there", applied, |home| {
        CorpusRequest::Apply(home.broken(), Uid::Right)
    }),
    (
        "apply a change to what may not be changed",
        |home| vec![Given::Applied(Item { immutable: true, ..home.map.clone() })],
        |home| CorpusRequest::Apply(Item { immutable: true, ..home.changed() }, Uid::Right),
    ),
    ("dry run of what is absent", nothing, |home| CorpusRequest::DryRun(home.map.clone(), Uid::None)),
    ("dry run of what is absent, naming a uid", nothing, |home| {
        CorpusRequest::DryRun(home.map.clone(), Uid::Wrong)
    }),
    ("dry run of a change", applied, |home| CorpusRequest::DryRun(home.changed(), Uid::Right)),
    ("dry run of a change, naming another uid", applied, |home| {
        CorpusRequest::DryRun(home.changed(), Uid::Wrong)
    }),
    ("dry run of what is broken", nothing, |home| CorpusRequest::DryRun(home.broken(), Uid::None)),
    ("dry run in a namespace that is not there", nothing, |home| {
        CorpusRequest::DryRun(Item::new(&format!("/ConfigMap/{}-nowhere/one", home.name), 1), Uid::None)
    }),
    ("dry run in a namespace that ends", Home::ending, |home| {
        CorpusRequest::DryRun(home.map.clone(), Uid::None)
    }),
    ("apply of an unknown kind", nothing, |home| CorpusRequest::Apply(home.widget.clone(), Uid::None)),
    ("dry run of an unknown kind", nothing, |home| CorpusRequest::DryRun(home.widget.clone(), Uid::None)),
    ("read an unknown kind", nothing, |home| CorpusRequest::ReadObject(home.widget.key.clone())),
    ("delete of an unknown kind", nothing, |home| CorpusRequest::Delete(home.widget.key.clone(), Uid::Wrong)),
    (
        "apply of a kind that is known by now",
        |home| vec![Given::Served(home.definition.clone())],
        |home| CorpusRequest::Apply(home.widget.clone(), Uid::None),
    ),
    ("apply of a kind whose definition ends", Home::ending_definition, |home| {
        let name = format!("{}/two", home.widget.key.to_string().trim_end_matches("/one"));
        CorpusRequest::Apply(Item { key: key(&name), ..home.widget.clone() }, Uid::None)
    }),
    ("apply of a definition that ends", Home::ending_definition, |home| {
        CorpusRequest::Apply(home.definition.clone(), Uid::Right)
    }),
    ("read what is absent", nothing, |home| CorpusRequest::ReadObject(home.map.key.clone())),
    ("read what another owns", foreign, |home| CorpusRequest::ReadObject(home.map.key.clone())),
    ("delete", applied, |home| CorpusRequest::Delete(home.map.key.clone(), Uid::Right)),
    ("delete, naming another uid", applied, |home| CorpusRequest::Delete(home.map.key.clone(), Uid::Wrong)),
    ("delete what is absent", nothing, |home| CorpusRequest::Delete(home.map.key.clone(), Uid::Wrong)),
    ("delete what is held", Home::held, |home| CorpusRequest::Delete(home.map.key.clone(), Uid::Right)),
    ("delete what is on its way out", Home::leaving, |home| {
        CorpusRequest::Delete(home.map.key.clone(), Uid::Right)
    }),
    ("delete a namespace that ends", Home::ending, |home| {
        CorpusRequest::Delete(namespace_key(&home.name), Uid::Right)
    }),
    (
        "delete a definition with something held",
        |home| Home::ending_definition(home)[..3].to_vec(),
        |home| CorpusRequest::Delete(home.definition.key.clone(), Uid::Right),
    ),
    ("release", applied, |home| CorpusRequest::Release(home.map.key.clone(), Uid::Right)),
    ("release, naming another uid", applied, |home| CorpusRequest::Release(home.map.key.clone(), Uid::Wrong)),
    ("release what is absent", nothing, |home| CorpusRequest::Release(home.map.key.clone(), Uid::Wrong)),
    ("release what another owns", foreign, |home| CorpusRequest::Release(home.map.key.clone(), Uid::Right)),
    ("release what is on its way out", Home::leaving, |home| {
        CorpusRequest::Release(home.map.key.clone(), Uid::Right)
    }),
    ("list an empty namespace", nothing, |home| CorpusRequest::ListContained(namespace_key(&home.name))),
    ("list a namespace with things", foreign, |home| CorpusRequest::ListContained(namespace_key(&home.name))),
    (
        "list a namespace with a child",
        |home| {
            let (child, owner) = (home.other.key.clone(), home.map.key.clone());
            vec![Given::Foreign(home.map.clone()), Given::Child(child, owner)]
        },
        |home| CorpusRequest::ListContained(namespace_key(&home.name)),
    ),
    (
        "list a definition",
        |home| Home::ending_definition(home)[..2].to_vec(),
        |home| CorpusRequest::ListContained(home.definition.key.clone()),
    ),
];
