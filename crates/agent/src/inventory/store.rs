//! Reads and writes records.
//!
//! Shards are written first, then the record, which names them. Shards that it no longer names are deleted
//! last. So the record is complete at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brokkr_api::{AgentId, StackId};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};

use super::pack::PackError;
use super::shard::{Cut, Header, Part, Shard, cut};
use super::shard_store::ShardStore;
use super::wire::{self, from_object, inventory_of, record_name, to_object};
use super::{choose, retire};
use crate::model::Record;
use crate::own_objects::{RequestError, StackLocks, with_deadline};

/// The maximum number of reads of a record, if its shards are replaced while they are read.
const READS: usize = 3;

#[derive(Clone)]
pub struct Records {
    api: Api<DynamicObject>,
    agent: AgentId,
    shard_store: ShardStore,
    locks: StackLocks,
    known: Arc<Mutex<HashMap<StackId, Known>>>,
}

/// What is known about a record in the cluster.
#[derive(Clone, Debug, Default)]
struct Known {
    name: String,
    /// The resourceVersion; none if there is no record, as far as known.
    version: Option<String>,
    /// The shards that this version of the record names.
    shards: Vec<Shard>,
    /// Shards that it does not name, because the record was not written or these shards are not deleted yet.
    loose: Vec<Shard>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another writer has changed the record since it was read: read it again.
    #[error("the record was changed by another writer")]
    Stale,
    #[error("failed to read or write the record")]
    Request(#[source] RequestError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(
        "the record {record} refers to the inventory shard {shard}, which is missing or damaged; the stack is not changed. \
         Restore that ConfigMap from a backup, or remove the finalizer from the record and delete the record; objects that \
         are not in the stack's newest version are then left in the cluster"
    )]
    Shard { record: String, shard: String },
}

impl From<RequestError> for RecordError {
    fn from(error: RequestError) -> Self {
        if error.is(409) { Self::Stale } else { Self::Request(error) }
    }
}

impl Records {
    #[must_use]
    pub fn new(client: Client, namespace: &str, agent: AgentId) -> Self {
        Self {
            shard_store: ShardStore::new(&client, namespace, agent),
            api: Api::all_with(client, &wire::api_resource()),
            agent,
            locks: StackLocks::default(),
            known: Arc::default(),
        }
    }

    /// Loads all records of this agent. A record that another client deleted is created again.
    pub async fn load(&self) -> Result<Vec<Record>, RecordError> {
        let mut records = Vec::new();
        for (stack, objects) in self.list().await? {
            let _lock = self.locks.lock(stack).await;
            match self.settle(stack, objects).await {
                Ok(record) => records.extend(record),
                Err(error @ (RecordError::Request(_) | RecordError::Stale)) => return Err(error),
                // An unreadable record stops its own stack, not the agent.
                Err(error) => {
                    tracing::error!(stack.id = %stack, %error, "failed to read the record; the stack is not changed");
                }
            }
        }
        Ok(records)
    }

    /// Reads every record, as a start does, but writes nothing; fails if one cannot be read.
    pub async fn check(&self) -> Result<(), RecordError> {
        for object in self.list().await?.into_values().flatten() {
            let (record, header) = (object.name_any(), inventory_of(&object)?);
            let parts = self.shard_store.read(&header.shards).await?;
            header.join(&parts.map_err(|shard| RecordError::Shard { record, shard })?)?;
            from_object(object)?;
        }
        Ok(())
    }

    /// Returns the stacks with a record, readable or not: this agent holds all of them.
    #[must_use]
    pub fn stacks(&self) -> BTreeSet<StackId> {
        self.known().iter().filter(|(_, known)| known.version.is_some()).map(|(stack, _)| *stack).collect()
    }

    /// Reads a record. One that is being deleted is created again.
    pub async fn fetch(&self, stack_name: &str, stack: StackId) -> Result<Option<Record>, RecordError> {
        let _lock = self.locks.lock(stack).await;
        self.find(stack_name, stack).await
    }

    async fn find(&self, stack_name: &str, stack: StackId) -> Result<Option<Record>, RecordError> {
        let name = record_name(stack_name, stack);
        let names = [wire::other_name(&name), name];
        let mut objects = Vec::new();
        // A record that is being deleted is copied to its other name. This may happen between the two reads,
        // so they are repeated if they find nothing.
        for _ in 0..2 {
            for name in &names {
                let found = with_deadline(self.api.get_opt(name)).await?;
                objects.extend(found.filter(|object| wire::stack_of(object, self.agent) == Some(stack)));
            }
            if !objects.is_empty() {
                break;
            }
        }
        self.settle(stack, objects).await
    }

    /// Keeps one of the records that were found, creates it again if it is being deleted, and reads it.
    async fn settle(
        &self,
        stack: StackId,
        objects: Vec<DynamicObject>,
    ) -> Result<Option<Record>, RecordError> {
        let Some((chosen, others)) = choose::choose(objects) else {
            // The shards of the lost record are deleted after the next write, or by the next run.
            if let Some(known) = self.known().get_mut(&stack) {
                known.version = None;
                known.loose.append(&mut known.shards);
            }
            return Ok(None);
        };
        let mut object = retire::keep_one(&self.api, self.agent, chosen, others).await?;
        for _ in 0..READS {
            let header = inventory_of(&object);
            self.note(
                stack,
                &object,
                header.as_ref().map(|header| header.shards.clone()).unwrap_or_default(),
            );
            let (name, header) = (object.name_any(), header?);
            match self.shard_store.read(&header.shards).await? {
                Ok(parts) => {
                    let mut record = from_object(object)?;
                    record.inventory = header.join(&parts)?.into();
                    return Ok(Some(record));
                }
                Err(shard) => {
                    let again = with_deadline(self.api.get(&name)).await?;
                    if again.resource_version() == object.resource_version() {
                        return Err(RecordError::Shard { record: name, shard });
                    }
                    object = again;
                }
            }
        }
        Err(RecordError::Stale)
    }

    /// Creates or replaces the record; returns the new resourceVersion.
    pub async fn write(&self, record: &Record) -> Result<String, RecordError> {
        let _lock = self.locks.lock(record.stack).await;
        let mut known = self.known().get(&record.stack).cloned().unwrap_or_default();
        // The API server would also refuse it, but only after the shards are written.
        if record.version != known.version {
            return Err(RecordError::Stale);
        }
        if known.name.is_empty() {
            known.name = record_name(&record.stack_name, record.stack);
        }
        let header = match cut(&record.inventory)? {
            Cut::Inline(header) => header,
            Cut::Parts(parts) => self.store_parts(record, &mut known, &parts).await?,
        };
        let object = to_object(record, self.agent, &known.name, header.clone())?;
        let version = self.put(record, &known.name, object).await?;
        let garbage = std::mem::take(&mut known.shards).into_iter().chain(std::mem::take(&mut known.loose));
        let garbage = garbage.filter(|shard| !header.shards.contains(shard)).collect();
        known.version = Some(version.clone());
        known.shards = header.shards;
        known.loose = self.shard_store.discard(garbage).await;
        self.known().insert(record.stack, known);
        Ok(version)
    }

    /// Writes the parts that are not stored in a shard yet.
    async fn store_parts(
        &self,
        record: &Record,
        known: &mut Known,
        parts: &[Part],
    ) -> Result<Header, RecordError> {
        let mut shards = Vec::new();
        let mut new = Vec::new();
        for part in parts {
            // A shard of the current record exists, and is not deleted before the record is replaced.
            let existing = known.shards.iter().find(|shard| shard.digest == part.digest);
            let shard = existing.cloned().unwrap_or_else(|| {
                let name = ShardStore::name(record.stack, record.session, part);
                let shard = Shard { name, digest: part.digest };
                new.push((shard.clone(), part));
                shard
            });
            shards.push(shard);
        }
        // Tracked from here on, even if the record is not written.
        known.loose.extend(new.iter().map(|(shard, _)| shard.clone()));
        self.known().insert(record.stack, known.clone());
        self.shard_store.write(record.stack, record.session, &new).await?;
        Ok(Header { entries: record.inventory.len(), packed: None, shards })
    }

    async fn put(&self, record: &Record, name: &str, object: DynamicObject) -> Result<String, RecordError> {
        let written = match &record.version {
            None => with_deadline(self.api.create(&PostParams::default(), &object)).await?,
            Some(_) => match with_deadline(self.api.replace(name, &PostParams::default(), &object)).await {
                // Deleted after its finalizer was removed: create it again, unless it exists under its other
                // name.
                Err(error) if error.is(404) => {
                    if with_deadline(self.api.get_opt(&wire::other_name(name))).await?.is_some() {
                        return Err(RecordError::Stale);
                    }
                    let mut object = object;
                    object.metadata.resource_version = None;
                    with_deadline(self.api.create(&PostParams::default(), &object)).await?
                }
                other => other?,
            },
        };
        Ok(written.resource_version().unwrap_or_default())
    }

    /// Deletes the record of a removed stack, unless another writer has changed it. Its shards are deleted
    /// after it.
    pub async fn delete(&self, stack_name: &str, stack: StackId) -> Result<(), RecordError> {
        let _lock = self.locks.lock(stack).await;
        if self.known().get(&stack).is_none_or(|known| known.version.is_none()) {
            self.find(stack_name, stack).await?;
        }
        let known = self.known().get(&stack).cloned();
        if let Some(known) = known.filter(|known| known.version.is_some()) {
            match with_deadline(self.api.get_opt(&known.name)).await? {
                Some(object) if object.resource_version() != known.version => {
                    return Err(RecordError::Stale);
                }
                Some(object) => retire::release(&self.api, object).await?,
                None if with_deadline(self.api.get_opt(&wire::other_name(&known.name))).await?.is_some() => {
                    return Err(RecordError::Stale);
                }
                None => {}
            }
        }
        self.shard_store.clear(stack).await?;
        self.known().remove(&stack);
        Ok(())
    }

    /// Deletes the shards of earlier runs that no record names, because the agent crashed before it wrote the
    /// record. Waits first, so that an earlier run that is ending can still write its record.
    pub async fn sweep(&self, session: i64, grace: Duration) -> Result<(), RecordError> {
        let candidates = self.shard_store.older_than(session).await?;
        if candidates.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(grace).await;
        let (mut named, mut unclear) = (BTreeSet::new(), BTreeSet::new());
        for (stack, objects) in self.list().await? {
            for object in objects {
                match inventory_of(&object) {
                    Ok(header) => named.extend(header.shards.into_iter().map(|shard| shard.name)),
                    Err(_) => {
                        unclear.insert(stack);
                    }
                }
            }
        }
        let orphans = candidates
            .into_iter()
            .filter(|old| !named.contains(&old.name) && !unclear.contains(&old.stack))
            .map(|old| old.name)
            .collect();
        Ok(self.shard_store.remove_all(&orphans).await?)
    }

    /// Lists all records of this agent. It does not select by label, because a record without the label also
    /// counts.
    async fn list(&self) -> Result<BTreeMap<StackId, Vec<DynamicObject>>, RecordError> {
        let mut found: BTreeMap<StackId, Vec<DynamicObject>> = BTreeMap::new();
        let mut page = ListParams::default().limit(100);
        loop {
            let list = with_deadline(self.api.list(&page)).await?;
            for object in list.items {
                if let Some(stack) = wire::stack_of(&object, self.agent) {
                    found.entry(stack).or_default().push(object);
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    fn note(&self, stack: StackId, object: &DynamicObject, shards: Vec<Shard>) {
        let mut all = self.known();
        let known = all.entry(stack).or_default();
        known.name = object.name_any();
        known.version = object.resource_version();
        known.loose.retain(|shard| !shards.contains(shard));
        known.shards = shards;
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<StackId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
