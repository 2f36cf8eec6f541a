//! Watches on the scripted server, with the index that they feed.

use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_manifest::Key;
use tokio::sync::mpsc;

use super::server::Server;
use crate::model::{Observed as _, SeenObject};
use crate::observe::timing::WatchTiming;
use crate::observe::{Change, Index, Scope, Watches};
use crate::resource::{Kind, KindIn, KindName, Served};

pub const MAPS: &str = "/api/v1/configmaps";
pub const WIDGETS: &str = "/apis/shop.example/v1/widgets";

pub struct Rig {
    pub server: Server,
    pub watches: Watches,
    pub index: Index,
    /// The changes so far, in order, as short texts.
    pub changes_seen: Vec<String>,
    changes: mpsc::Receiver<Change>,
}

pub fn maps() -> Kind {
    kind("", "v1", "ConfigMap", "configmaps")
}

pub fn widgets(version: &str) -> Kind {
    kind("shop.example", version, "Widget", "widgets")
}

pub fn kind(group: &str, version: &str, kind: &str, plural: &str) -> Kind {
    Kind::from(Served {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced: true,
    })
}

pub fn in_namespace(namespace: &str, kind: &Kind) -> KindIn {
    KindIn { kind: kind.clone(), namespace: Some(namespace.to_owned()) }
}

pub fn key(namespace: &str, kind: &Kind, name: &str) -> Key {
    let KindName { group, kind } = kind.name();
    Key { group, kind, namespace: Some(namespace.to_owned()), name: name.to_owned() }
}

impl Rig {
    pub fn new() -> Self {
        Self::in_scope(Scope::Cluster)
    }

    pub fn in_scope(scope: Scope) -> Self {
        let timing = WatchTiming {
            first: Duration::from_millis(10),
            longest: Duration::from_millis(100),
            slow_first: Duration::from_millis(20),
            slow_longest: Duration::from_millis(50),
            answer: Duration::from_millis(500),
            watch_least: Duration::from_secs(1),
            watch_most: Duration::from_secs(1),
            margin: Duration::from_millis(50),
            blind_after: Duration::from_millis(300),
        };
        let server = Server::new();
        let (to, changes) = mpsc::channel(64);
        let watches = Watches::with_timing(server.client(), AgentId::generate(), scope, to, timing);
        Self { server, watches, index: Index::default(), changes_seen: Vec::new(), changes }
    }

    /// Applies changes until a condition holds.
    pub async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while !condition(self) {
            tokio::select! {
                change = self.changes.recv() => self.take(change.expect("the watches still run")),
                // Some conditions are about the server alone.
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            let seen = &self.changes_seen;
            assert!(tokio::time::Instant::now() < deadline, "not {what}; changes so far: {seen:#?}");
        }
    }

    fn take(&mut self, change: Change) {
        self.changes_seen.push(match &change {
            Change::Listing(_) => "listing".into(),
            Change::Listed(_) => "listed".into(),
            Change::Present(key, _) => format!("present {}", key.name),
            Change::Gone(key, uid, _) => format!("gone {} {uid}", key.name),
            Change::Unserved(_) => "unserved".into(),
            Change::Unwatchable(_, why) => format!("unwatchable {why}"),
            Change::Unwatched(_) => "unwatched".into(),
            Change::HealthRules(_) => "health rules".into(),
            Change::PrerequisiteChanged(prerequisite, name) => {
                format!("prerequisite changed {prerequisite:?} {name}")
            }
        });
        self.index.absorb(change);
    }

    pub async fn watch_maps(&mut self) {
        self.ensure([&maps()]);
        self.until("watched", |rig| rig.synced(&maps()) && rig.server.world().watched(MAPS)).await;
    }

    /// Watches these kinds in the namespace `shop`.
    pub fn ensure<'a>(&mut self, kinds: impl IntoIterator<Item = &'a Kind>) {
        self.watches.ensure(kinds.into_iter().map(|kind| in_namespace("shop", kind)));
    }

    pub fn synced(&self, kind: &Kind) -> bool {
        self.index.synced(&key("shop", kind, "any"))
    }

    pub fn knows(&self, kind: &Kind, name: &str) -> bool {
        self.uid(kind, name).is_some()
    }

    pub fn version(&self, kind: &Kind, name: &str) -> Option<u64> {
        self.seen(kind, name).map(|seen| seen.version)
    }

    pub fn uid(&self, kind: &Kind, name: &str) -> Option<String> {
        self.seen(kind, name).map(|seen| seen.uid.to_string())
    }

    fn seen(&self, kind: &Kind, name: &str) -> Option<&SeenObject> {
        self.index.seen(&key("shop", kind, name))
    }

    pub fn times(&self, change: &str) -> usize {
        self.changes_seen.iter().filter(|line| *line == change).count()
    }
}
