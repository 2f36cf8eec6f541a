//! The shards of inventories: ConfigMaps in the agent's namespace.
//!
//! A shard never changes and its name is never used again, so a late deletion cannot affect another shard. A
//! shard is garbage when no record names it.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, StackId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};

use super::shard::{Part, Shard};
use crate::own_objects::{KEPT_BY, RequestError, labels, list, remove, tail, with_deadline};

/// The label with the id of the stack.
pub const INVENTORY_OF: &str = "brokkr.io/inventory-of";
/// The label with the session (the run of the agent) that wrote the shard.
const SESSION: &str = "brokkr.io/session";
const PART: &str = "part";
/// The maximum number of concurrent requests.
const AT_ONCE: usize = 4;

#[derive(Clone)]
pub struct ShardStore {
    api: Api<ConfigMap>,
    agent: AgentId,
}

/// A shard of an earlier run.
pub struct OldShard {
    pub name: String,
    pub stack: StackId,
}

impl ShardStore {
    pub fn new(client: &Client, namespace: &str, agent: AgentId) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), agent }
    }

    /// Returns a name that was never used: the session, the digest and a random number.
    pub fn name(stack: StackId, session: i64, part: &Part) -> String {
        let chance: u32 = rand::random();
        format!("brokkr-inventory-{}-{session}-{}-{chance:08x}", tail(stack), &part.digest.to_string()[..12])
    }

    pub async fn write(
        &self,
        stack: StackId,
        session: i64,
        new: &[(Shard, &Part)],
    ) -> Result<(), RequestError> {
        let mut labels = labels(self.agent, INVENTORY_OF, stack);
        labels.insert(SESSION.to_owned(), session.to_string());
        let requests: Vec<_> =
            new.iter().map(|(shard, part)| self.create(&shard.name, &labels, &part.bytes)).collect();
        stream::iter(requests).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn create(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        bytes: &[u8],
    ) -> Result<(), RequestError> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.clone()),
                ..ObjectMeta::default()
            },
            binary_data: Some([(PART.to_owned(), ByteString(bytes.to_vec()))].into()),
            ..ConfigMap::default()
        };
        with_deadline(self.api.create(&PostParams::default(), &map)).await.map(|_| ())
    }

    /// Returns the contents of the shards in order, or the name of the first one that is missing or damaged.
    pub async fn read(&self, shards: &[Shard]) -> Result<Result<Vec<Vec<u8>>, String>, RequestError> {
        let requests: Vec<_> = shards.iter().map(|shard| self.part(shard)).collect();
        let parts: Vec<Option<Vec<u8>>> = stream::iter(requests).buffered(AT_ONCE).try_collect().await?;
        let named = shards.iter().zip(parts);
        Ok(named.map(|(shard, part)| part.ok_or_else(|| shard.name.clone())).collect())
    }

    async fn part(&self, shard: &Shard) -> Result<Option<Vec<u8>>, RequestError> {
        let found = with_deadline(self.api.get_opt(&shard.name)).await?;
        let part = found.and_then(|map| map.binary_data?.remove(PART)).map(|part| part.0);
        Ok(part.filter(|part| Checksum::of(part) == shard.digest))
    }

    /// Deletes shards that no record names; returns those that could not be deleted.
    pub async fn discard(&self, garbage: Vec<Shard>) -> Vec<Shard> {
        let requests: Vec<_> = garbage.iter().map(|shard| remove(&self.api, &shard.name)).collect();
        let done: Vec<_> = stream::iter(requests).buffered(AT_ONCE).collect().await;
        let failed = |(shard, done): (Shard, Result<(), RequestError>)| {
            let error = done.err()?;
            tracing::warn!(shard = shard.name, %error, "failed to delete an old inventory shard; will retry");
            Some(shard)
        };
        garbage.into_iter().zip(done).filter_map(failed).collect()
    }

    /// Removes every shard of a stack after its record is deleted.
    pub async fn clear(&self, stack: StackId) -> Result<(), RequestError> {
        for map in list(&self.api, &format!("{KEPT_BY}={},{INVENTORY_OF}={stack}", self.agent)).await? {
            remove(&self.api, &map.name_any()).await?;
        }
        Ok(())
    }

    /// Returns the shards of earlier runs.
    pub async fn older_than(&self, session: i64) -> Result<Vec<OldShard>, RequestError> {
        let maps = list(&self.api, &format!("{KEPT_BY}={},{INVENTORY_OF}", self.agent)).await?;
        let old = |labels: &BTreeMap<String, String>| {
            let written: i64 = labels.get(SESSION)?.parse().ok()?;
            let stack: StackId = labels.get(INVENTORY_OF)?.parse().ok()?;
            (written < session).then_some(stack)
        };
        Ok(maps
            .iter()
            .filter_map(|map| Some(OldShard { name: map.name_any(), stack: old(map.labels())? }))
            .collect())
    }

    pub async fn remove_all(&self, names: &BTreeSet<String>) -> Result<(), RequestError> {
        for name in names {
            remove(&self.api, name).await?;
        }
        Ok(())
    }
}
