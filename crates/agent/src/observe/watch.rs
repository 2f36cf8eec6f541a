//! One watch per kind, selected by our label. What is not ours costs nothing.

use std::collections::HashMap;

use brokkr_api::AgentId;
use brokkr_manifest::Key;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::tracked::Tracked;
use crate::marks::AGENT_LABEL;
use crate::plan::types::Seen;
use crate::resource::{Kind, KindName};

/// What a watch tells.
#[derive(Debug)]
pub enum Change {
    /// A list began: whatever is not heard of before it ends is gone.
    Listing(KindName),
    Listed(KindName),
    Present(Key, Box<Seen>),
    /// Deleted, or without our label now: ask before concluding anything.
    Gone(Key, String),
}

/// The running watches.
pub struct Watches {
    client: Client,
    agent: AgentId,
    changes: mpsc::Sender<Change>,
    running: HashMap<KindName, JoinHandle<()>>,
}

impl Watches {
    #[must_use]
    pub fn new(client: Client, agent: AgentId, changes: mpsc::Sender<Change>) -> Self {
        Self { client, agent, changes, running: HashMap::new() }
    }

    /// Starts what is missing.
    pub fn ensure<'a>(&mut self, kinds: impl IntoIterator<Item = &'a Kind>) {
        for kind in kinds {
            let name = kind.name();
            if self.running.contains_key(&name) {
                continue;
            }
            tracing::debug!(%kind, "watching");
            let selector = format!("{AGENT_LABEL}={}", self.agent);
            let task = if kind.has_status() {
                tokio::spawn(follow::<false>(
                    self.client.clone(),
                    kind.clone(),
                    selector,
                    self.changes.clone(),
                ))
            } else {
                tokio::spawn(follow::<true>(
                    self.client.clone(),
                    kind.clone(),
                    selector,
                    self.changes.clone(),
                ))
            };
            self.running.insert(name, task);
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.running.values() {
            task.abort();
        }
    }
}

/// Follows one kind for as long as the process lives. An error is an item of the stream, not its end.
async fn follow<const METADATA: bool>(
    client: Client,
    kind: Kind,
    selector: String,
    changes: mpsc::Sender<Change>,
) {
    let api = Api::<Tracked<METADATA>>::all_with(client, &kind.api_resource());
    let config = watcher::Config::default().labels(&selector).page_size(250);
    let mut stream = std::pin::pin!(watcher(api, config).default_backoff());
    let name = kind.name();
    while let Some(event) = stream.next().await {
        let change = match event {
            Ok(Event::Init) => Change::Listing(name.clone()),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                Change::Present(key_of(&name, &object), Box::new(object.into_seen(&name, Timestamp::now())))
            }
            Ok(Event::InitDone) => Change::Listed(name.clone()),
            Ok(Event::Delete(object)) => {
                let uid = object.meta().uid.clone().unwrap_or_default();
                Change::Gone(key_of(&name, &object), uid)
            }
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                if is_not_served(status.code) =>
            {
                // Nothing of a kind that is not served, or cannot be listed, can be there.
                tracing::debug!(%kind, code = status.code, "not served; asked for again");
                if changes.send(Change::Listing(name.clone())).await.is_err() {
                    return;
                }
                Change::Listed(name.clone())
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "watch failed, trying again");
                continue;
            }
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

fn is_not_served(code: u16) -> bool {
    matches!(code, 404 | 405)
}

fn key_of<const METADATA: bool>(kind: &KindName, object: &Tracked<METADATA>) -> Key {
    Key {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        namespace: object.meta().namespace.clone(),
        name: object.meta().name.clone().unwrap_or_default(),
    }
}
