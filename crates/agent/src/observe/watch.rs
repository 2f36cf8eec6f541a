//! The running watches: one per kind (and namespace, where the agent may see only some), selected by our
//! label. What is not ours costs nothing.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brokkr_api::AgentId;
use brokkr_manifest::Key;
use futures::FutureExt as _;
use kube::Client;
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ask::Source;
use super::follow::{Audience, Course, Follower, Shared};
use super::tempo::Tempo;
use crate::marks::AGENT_LABEL;
pub use crate::plan::steps::Ground;
use crate::plan::types::{Seen, Uid};
use crate::resource::{Kind, KindName, Served};

/// So many lists are under way at once.
const LISTS: usize = 5;

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list began: whatever is not heard of before it ends is gone.
    Listing(Arc<Part>),
    Listed(Arc<Part>),
    Present(Key, Box<Seen>),
    /// Deleted, or without our label now: ask before concluding anything.
    Gone(Key, Uid),
    /// There is no such kind now, so nothing of it is there. Asked for again; a list tells when it is back.
    Unserved(Arc<Part>),
    /// May not be watched, and why: what is there is not known. Asked for again.
    Unwatchable(Arc<Part>, String),
    /// No longer watched, because nobody needs it. The last that is heard of it.
    Unwatched(Arc<Part>),
    /// Something happened to the definition or namespace of this name, be it ours or not.
    Stirred(Ground, String),
}

/// What one watch covers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub kind: KindName,
    /// None: all of them, or not namespaced.
    pub namespace: Option<Arc<str>>,
    /// How many parts there are of this kind; it is known when all are.
    pub of: usize,
}

/// Where this agent looks.
#[derive(Clone, Debug)]
pub enum Scope {
    Cluster,
    Namespaces(Vec<String>),
}

pub struct Watches {
    client: Client,
    agent: AgentId,
    scope: Scope,
    tempo: Tempo,
    changes: mpsc::Sender<Change>,
    shared: Arc<Shared>,
    running: HashMap<KindName, Vec<Running>>,
    parked: HashMap<Ground, Running>,
    /// Told to stop; a new watch of the same kind begins after their last word.
    ending: HashMap<KindName, Vec<JoinHandle<()>>>,
}

struct Running {
    stop: CancellationToken,
    relist: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Watches {
    #[must_use]
    pub fn new(client: Client, agent: AgentId, scope: Scope, changes: mpsc::Sender<Change>) -> Self {
        Self::with_tempo(client, agent, scope, changes, Tempo::default())
    }

    pub(super) fn with_tempo(
        client: Client,
        agent: AgentId,
        scope: Scope,
        changes: mpsc::Sender<Change>,
        tempo: Tempo,
    ) -> Self {
        let shared =
            Shared { lists: Semaphore::new(LISTS), stirred: Notify::new(), streaming: OnceCell::new() };
        Self {
            client,
            agent,
            scope,
            tempo,
            changes,
            shared: Arc::new(shared),
            running: HashMap::new(),
            parked: HashMap::new(),
            ending: HashMap::new(),
        }
    }

    /// Starts what is missing.
    pub fn ensure<'a>(&mut self, kinds: impl IntoIterator<Item = &'a Kind>) {
        for kind in kinds {
            let name = kind.name();
            if self.running.contains_key(&name) {
                continue;
            }
            tracing::debug!(%kind, "watching");
            let mut after = self.ending.remove(&name).unwrap_or_default();
            let namespaces: Vec<Option<Arc<str>>> = match &self.scope {
                Scope::Namespaces(namespaces) if kind.namespaced => {
                    namespaces.iter().map(|namespace| Some(namespace.as_str().into())).collect()
                }
                _ => vec![None],
            };
            let of = namespaces.len();
            let mut parts = Vec::with_capacity(of);
            for namespace in namespaces {
                let part = Part { kind: name.clone(), namespace: namespace.clone(), of };
                let source = self.source(kind.clone(), namespace, !kind.has_status(), true);
                parts.push(self.start(source, Audience::Index(Arc::new(part)), std::mem::take(&mut after)));
            }
            self.running.insert(name, parts);
        }
    }

    /// Stops the watches of kinds that nobody needs. Each ends with [`Change::Unwatched`].
    pub fn retain(&mut self, wanted: &BTreeSet<KindName>) {
        self.ending.retain(|_, tasks| tasks.iter().any(|task| !task.is_finished()));
        let (ending, running) = (&mut self.ending, &mut self.running);
        running.retain(|name, parts| {
            if wanted.contains(name) {
                return true;
            }
            tracing::debug!(kind = name.kind, group = name.group, "no longer watched");
            let ends = ending.entry(name.clone()).or_default();
            for part in parts.drain(..) {
                part.stop.cancel();
                ends.push(part.task);
            }
            false
        });
    }

    /// How many watches keep the index.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.running.values().map(Vec::len).sum()
    }

    /// How many watches there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept() + self.parked.len()
    }

    /// Has one kind listed afresh, because events may have been missed. Nothing is lost meanwhile.
    pub fn relist(&self, kind: &KindName) {
        for part in self.running.get(kind).into_iter().flatten() {
            part.relist.notify_one();
        }
    }

    pub fn relist_all(&self) {
        for kind in self.running.keys() {
            self.relist(kind);
        }
    }

    /// Tells of everything that happens to definitions or namespaces, from now until [`Self::unpark`].
    /// What is there already is told first, so that nothing falls between waiting and watching.
    pub fn park(&mut self, ground: Ground) {
        if self.parked.contains_key(&ground) {
            return;
        }
        let source = self.source(ground.kind(), None, true, false);
        let running = self.start(source, Audience::Parked(ground), Vec::new());
        self.parked.insert(ground, running);
    }

    pub fn unpark(&mut self, ground: Ground) {
        if let Some(running) = self.parked.remove(&ground) {
            running.stop.cancel();
        }
    }

    fn source(&self, kind: Kind, namespace: Option<Arc<str>>, metadata_only: bool, ours: bool) -> Source {
        Source {
            client: self.client.clone(),
            kind,
            namespace,
            selector: ours.then(|| format!("{AGENT_LABEL}={}", self.agent)),
            metadata_only,
            tempo: self.tempo,
        }
    }

    fn start(&self, source: Source, audience: Audience, after: Vec<JoinHandle<()>>) -> Running {
        let (stop, relist) = (CancellationToken::new(), Arc::new(Notify::new()));
        let follower = Follower {
            source,
            audience,
            changes: self.changes.clone(),
            shared: self.shared.clone(),
            relist: relist.clone(),
            course: Course::default(),
        };
        let task = tokio::spawn(supervise(follower, stop.clone(), after));
        Running { stop, relist, task }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for running in self.running.values().flatten().chain(self.parked.values()) {
            running.task.abort();
        }
    }
}

/// Follows until told to stop. A bug in here must not leave a kind unwatched without a word.
async fn supervise(mut follower: Follower, stop: CancellationToken, after: Vec<JoinHandle<()>>) {
    for task in after {
        let _ = task.await;
    }
    loop {
        let following = AssertUnwindSafe(follower.follow()).catch_unwind();
        match stop.run_until_cancelled(following).await {
            Some(Err(_)) => {
                tracing::error!(kind = %follower.source.kind, "a watch broke down; started anew");
                tokio::time::sleep(follower.source.tempo.first).await;
            }
            Some(Ok(())) => return,
            None => {
                follower.tell(Change::Unwatched).await;
                return;
            }
        }
    }
}

impl Ground {
    fn kind(self) -> Kind {
        let (group, kind, plural) = match self {
            Self::Definitions => {
                ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
            }
            Self::Namespaces => ("", "Namespace", "namespaces"),
        };
        Kind::from(Served {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced: false,
        })
    }
}
