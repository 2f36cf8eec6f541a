//! The running watches: one per kind, or one per kind and namespace if the agent may not see the whole
//! cluster. They select objects by our label, so other objects cost nothing.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brokkr_api::AgentId;
use futures::FutureExt as _;
use kube::Client;
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::change::{Change, Part, Scope};
use super::follow::{Consumer, Follower, Shared, WatchHistory};
use super::request::Source;
use super::timing::WatchTiming;
use crate::health;
use crate::model::{Prerequisite, prerequisite_kind};
use crate::ownership::AGENT_LABEL;
use crate::resource::{Kind, KindName};

/// The number of lists that run at the same time.
const LISTS: usize = 5;

pub struct Watches {
    client: Client,
    agent: AgentId,
    scope: Scope,
    timing: WatchTiming,
    changes: mpsc::Sender<Change>,
    shared: Arc<Shared>,
    running: HashMap<KindName, Vec<Running>>,
    blocked_on: HashMap<Prerequisite, Running>,
    /// Cancelled watches; a new watch of the same kind starts after they have ended.
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
        Self::with_timing(client, agent, scope, changes, WatchTiming::default())
    }

    pub(super) fn with_timing(
        client: Client,
        agent: AgentId,
        scope: Scope,
        changes: mpsc::Sender<Change>,
        timing: WatchTiming,
    ) -> Self {
        let shared = Shared {
            lists: Semaphore::new(LISTS),
            definition_changed: Notify::new(),
            streaming: OnceCell::new(),
        };
        Self {
            client,
            agent,
            scope,
            timing,
            changes,
            shared: Arc::new(shared),
            running: HashMap::new(),
            blocked_on: HashMap::new(),
            ending: HashMap::new(),
        }
    }

    /// Starts the watches that are missing.
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
                let source = self.source(kind.clone(), namespace, !health::reads_status(kind), true);
                parts.push(self.start(source, Consumer::Index(Arc::new(part)), std::mem::take(&mut after)));
            }
            self.running.insert(name, parts);
        }
    }

    /// Stops the watches of kinds that no stack needs. Each ends with [`Change::Unwatched`].
    pub fn retain(&mut self, desired: &BTreeSet<KindName>) {
        self.ending.retain(|_, tasks| tasks.iter().any(|task| !task.is_finished()));
        let (ending, running) = (&mut self.ending, &mut self.running);
        running.retain(|name, parts| {
            if desired.contains(name) {
                return true;
            }
            tracing::debug!(kind = name.kind, group = name.group, "stopped watching");
            let ends = ending.entry(name.clone()).or_default();
            for part in parts.drain(..) {
                part.stop.cancel();
                ends.push(part.task);
            }
            false
        });
    }

    /// Returns the number of watches that feed the index.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.running.values().map(Vec::len).sum()
    }

    /// Returns the number of watches.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept() + self.blocked_on.len()
    }

    /// Lists one kind again, in case events were missed. The index stays as it is meanwhile.
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

    /// Reports every change of definitions or namespaces until [`Self::unwatch_prerequisite`].
    /// Existing objects are reported first, so that a change before the watch starts is not missed.
    pub fn watch_prerequisite(&mut self, prerequisite: Prerequisite) {
        if self.blocked_on.contains_key(&prerequisite) {
            return;
        }
        let source = self.source(prerequisite_kind(prerequisite), None, true, false);
        let running = self.start(source, Consumer::Prerequisites(prerequisite), Vec::new());
        self.blocked_on.insert(prerequisite, running);
    }

    pub fn unwatch_prerequisite(&mut self, prerequisite: Prerequisite) {
        if let Some(running) = self.blocked_on.remove(&prerequisite) {
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
            timing: self.timing,
        }
    }

    fn start(&self, source: Source, consumer: Consumer, after: Vec<JoinHandle<()>>) -> Running {
        let (stop, relist) = (CancellationToken::new(), Arc::new(Notify::new()));
        let follower = Follower {
            source,
            consumer,
            changes: self.changes.clone(),
            shared: self.shared.clone(),
            relist: relist.clone(),
            history: WatchHistory::default(),
        };
        let task = tokio::spawn(supervise(follower, stop.clone(), after));
        Running { stop, relist, task }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for running in self.running.values().flatten().chain(self.blocked_on.values()) {
            running.task.abort();
        }
    }
}

/// Runs a watch until it is cancelled, and restarts it after a panic, so that no kind is left unwatched
/// silently.
async fn supervise(mut follower: Follower, stop: CancellationToken, after: Vec<JoinHandle<()>>) {
    for task in after {
        let _ = task.await;
    }
    loop {
        let following = AssertUnwindSafe(follower.follow()).catch_unwind();
        match stop.run_until_cancelled(following).await {
            Some(Err(_)) => {
                tracing::error!(kind = %follower.source.kind, "watch task panicked; restarting it");
                tokio::time::sleep(follower.source.timing.first).await;
            }
            Some(Ok(())) => return,
            None => {
                follower.send_change(Change::Unwatched).await;
                return;
            }
        }
    }
}
