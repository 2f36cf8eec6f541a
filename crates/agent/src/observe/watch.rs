//! The running watches: one per kind, or, if the agent may not see the whole cluster, one per kind and namespace in which
//! a stack has or wants objects of this kind. They select objects by our label, so other objects cost nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use brokkr_api::AgentId;
use brokkr_api::health_rules::HealthRule;
use futures::FutureExt as _;
use kube::Client;
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::change::{Change, Part, Scope};
use super::follow::{Consumer, Follower, Shared, WatchHistory};
use super::request::Source;
use super::timing::WatchTiming;
use crate::health_rules::HealthRules;
use crate::model::{Prerequisite, prerequisite_kind};
use crate::ownership::AGENT_LABEL;
use crate::resource::{Kind, KindIn};

/// The number of lists that run at the same time.
const LISTS: usize = 5;

pub struct Watches {
    client: Client,
    agent: AgentId,
    scope: Scope,
    timing: WatchTiming,
    rules: HealthRules,
    changes: mpsc::Sender<Change>,
    shared: Arc<Shared>,
    running: HashMap<Part, Running>,
    blocked_on: HashMap<Prerequisite, Running>,
    /// Cancelled watches; a new watch of the same part starts after they have ended.
    ending: HashMap<Part, Vec<JoinHandle<()>>>,
}

struct Running {
    stop: CancellationToken,
    relist: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Watches {
    #[must_use]
    pub fn new(
        client: Client,
        agent: AgentId,
        scope: Scope,
        rules: HealthRules,
        changes: mpsc::Sender<Change>,
    ) -> Self {
        let mut watches = Self::with_timing(client, agent, scope, changes, WatchTiming::default());
        watches.rules = rules;
        watches
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
            rules: HealthRules::default(),
            changes,
            shared: Arc::new(shared),
            running: HashMap::new(),
            blocked_on: HashMap::new(),
            ending: HashMap::new(),
        }
    }

    /// Starts the watches that are missing.
    pub fn ensure(&mut self, kinds: impl IntoIterator<Item = KindIn>) {
        for KindIn { kind, namespace } in kinds {
            let part = self.part(&kind, namespace.as_deref());
            if self.running.contains_key(&part) {
                continue;
            }
            tracing::debug!(%kind, namespace = part.namespace.as_deref(), "watching");
            let after = self.ending.remove(&part).unwrap_or_default();
            let metadata_only = !kind.is_observed_in_full();
            let source = self.source(kind, part.namespace.clone(), metadata_only, true);
            let running = self.start(source, Consumer::Index(Arc::new(part.clone())), after);
            self.running.insert(part, running);
        }
    }

    /// Returns the part that the watch of this kind in this namespace covers.
    fn part(&self, kind: &Kind, namespace: Option<&str>) -> Part {
        let namespace = namespace.filter(|_| matches!(self.scope, Scope::Namespaces(_)) && kind.namespaced);
        Part { kind: kind.name(), namespace: namespace.map(Arc::from) }
    }

    /// Stops the watches that no stack needs. Each ends with [`Change::Unwatched`].
    pub fn retain(&mut self, desired: &BTreeSet<KindIn>) {
        let desired: HashSet<Part> =
            desired.iter().map(|desired| self.part(&desired.kind, desired.namespace.as_deref())).collect();
        self.ending.retain(|_, tasks| tasks.iter().any(|task| !task.is_finished()));
        for (part, running) in self.running.extract_if(|part, _| !desired.contains(part)) {
            let Part { kind, namespace } = &part;
            tracing::debug!(
                kind = kind.kind,
                group = kind.group,
                namespace = namespace.as_deref(),
                "stopped watching"
            );
            running.stop.cancel();
            self.ending.entry(part).or_default().push(running.task);
        }
    }

    /// Returns the number of watches that feed the index.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of watches.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept() + self.blocked_on.len()
    }

    /// Lists everything again, in case events were missed. The index stays as it is meanwhile.
    pub fn relist_all(&self) {
        for running in self.running.values() {
            running.relist.notify_one();
        }
    }

    /// Lists the kinds again that one of these rules is for, so that their objects are evaluated again.
    pub fn relist_kinds_of(&self, rules: &[HealthRule]) {
        for (part, running) in &self.running {
            if rules.iter().any(|rule| rule.matches(&part.kind.group, &part.kind.kind)) {
                running.relist.notify_one();
            }
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
            rules: self.rules.clone(),
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
        for running in self.running.values().chain(self.blocked_on.values()) {
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
