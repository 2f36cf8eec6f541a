//! The agent's own objects in its namespace: their labels, and the requests for them.
//!
//! Each request has a deadline and is made once: the caller decides what a failure means.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::{AgentId, StackId};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, MutexGuard};

/// The label of the agent's own objects. Watches select by another label, `brokkr.io/agent`.
pub const KEPT_BY: &str = "brokkr.io/kept-by";

const DEADLINE: Duration = Duration::from_secs(30);
const PAGE: u32 = 500;
/// The number of locks. Stacks that share a lock wait for each other.
const LOCKS: usize = 64;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the API server refused the request or is not reachable")]
    Api(#[source] kube::Error),
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Timeout,
}

impl RequestError {
    #[must_use]
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == code)
    }
}

pub async fn with_deadline<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(RequestError::Api),
        Err(_) => Err(RequestError::Timeout),
    }
}

/// Returns the labels of the agent's own objects for a stack; `of` is the label with the id of the stack.
#[must_use]
pub fn labels(agent: AgentId, of: &str, stack: StackId) -> BTreeMap<String, String> {
    [(KEPT_BY.to_owned(), agent.to_string()), (of.to_owned(), stack.to_string())].into()
}

/// Returns the last part of an id, because the first part is a timestamp, which several ids may share.
#[must_use]
pub fn tail(stack: StackId) -> String {
    let id = stack.0.simple().to_string();
    id[id.len() - 12..].to_owned()
}

/// Locks for stacks, so that the stored objects of one stack are changed by one task at a time.
#[derive(Clone)]
pub struct StackLocks(Arc<[Mutex<()>; LOCKS]>);

impl Default for StackLocks {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Mutex::new(()))))
    }
}

impl StackLocks {
    pub async fn lock(&self, stack: StackId) -> MutexGuard<'_, ()> {
        self.0[usize::from(stack.0.as_bytes()[15]) % LOCKS].lock().await
    }
}

/// A namespaced kind of the agent's own objects.
pub trait Own: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug {}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug> Own for K {}

/// Creates the object, or replaces the one with its name.
pub async fn put<K: Own + Serialize + DeserializeOwned>(
    api: &Api<K>,
    object: &K,
) -> Result<(), RequestError> {
    match with_deadline(api.create(&PostParams::default(), object)).await {
        Err(error) if error.is(409) => {
            let name = object.meta().name.clone().unwrap_or_default();
            with_deadline(api.replace(&name, &PostParams::default(), object)).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

/// Deletes the object; succeeds if it is already gone.
pub async fn remove<K: Own + DeserializeOwned>(api: &Api<K>, name: &str) -> Result<(), RequestError> {
    match with_deadline(api.delete(name, &DeleteParams::default())).await {
        Err(error) if error.is(404) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Lists the objects with these labels, metadata only.
pub async fn list<K: Own + DeserializeOwned>(
    api: &Api<K>,
    labels: &str,
) -> Result<Vec<PartialObjectMeta<K>>, RequestError> {
    let mut found = Vec::new();
    let mut page = ListParams::default().labels(labels).limit(PAGE);
    loop {
        let list = with_deadline(api.list_metadata(&page)).await?;
        found.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}
