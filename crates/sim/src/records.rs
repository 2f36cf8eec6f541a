//! The records that are stored in the cluster, with their resourceVersion as precondition.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_agent::inventory::pack::{pack, unpack};
use brokkr_agent::inventory::shard::Header;
use brokkr_agent::inventory::wire::{from_object, to_object};
use brokkr_agent::model::Record;
use brokkr_api::{AgentId, StackId};

/// A record was not written, because its version is not the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

#[derive(Clone, Debug, Default)]
pub struct Records {
    kept: BTreeMap<StackId, Record>,
    version: u64,
    /// Whether every write fails, for example because a quota is exceeded.
    pub refuses: bool,
    /// Stacks with a record that was not written because of that.
    refused: BTreeSet<StackId>,
    /// The records before writes that landed after their process had died, and that no process has read since. Nothing was
    /// done because of such a write, so it counts as if it had never been made.
    before_late: BTreeMap<StackId, Option<Record>>,
    /// Stacks whose record has ever named an object: of others, nothing was ever in the cluster.
    pub named_objects: BTreeSet<StackId>,
    /// Stacks whose record a user has deleted, and the agent has not created again yet.
    dropped: BTreeSet<StackId>,
    /// Those of them that the agent has forgotten, because it died before it could create the record again.
    pub forgotten: BTreeSet<StackId>,
}

impl Records {
    #[must_use]
    pub fn get(&self, stack: StackId) -> Option<&Record> {
        self.kept.get(&stack)
    }

    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.kept.values()
    }

    /// Returns the record that some process knows to be stored.
    #[must_use]
    pub fn known(&self, stack: StackId) -> Option<&Record> {
        self.before_late.get(&stack).map_or_else(|| self.get(stack), Option::as_ref)
    }

    /// Returns whether there is a record that no process knows.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.before_late.values().any(Option::is_none)
    }

    /// Notes that a process has read the record.
    pub fn read(&mut self, stack: StackId) {
        self.before_late.remove(&stack);
    }

    /// Carries out a write of a process that has died. Returns whether the record was written.
    pub fn write_late(&mut self, record: &Record) -> bool {
        let before = self.known(record.stack).cloned();
        let is_written = !self.refuses && self.write(record).is_ok();
        if is_written {
            self.before_late.insert(record.stack, before);
        }
        is_written
    }

    /// Returns a number that grows with every write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Creates or replaces a record, and returns its new version.
    pub fn write(&mut self, record: &Record) -> Result<String, Stale> {
        let kept = self.kept.get(&record.stack);
        let fits = match (kept, &record.version) {
            // Deleted by hand: created again.
            (None, _) => true,
            (Some(_), None) => false,
            (Some(kept), version) => kept.version == *version,
        };
        if !fits {
            return Err(Stale);
        }
        self.version += 1;
        self.before_late.remove(&record.stack);
        self.dropped.remove(&record.stack);
        if !record.inventory.is_empty() {
            self.named_objects.insert(record.stack);
        }
        let version = self.version.to_string();
        self.kept.insert(record.stack, Record { version: Some(version.clone()), ..record.clone() });
        Ok(version)
    }

    /// Returns whether a write of this record is refused.
    pub fn refuse(&mut self, stack: StackId) -> bool {
        if self.refuses {
            self.refused.insert(stack);
        } else {
            self.refused.clear();
        }
        self.refuses
    }

    /// Returns whether the agent cannot write this record, and has tried.
    #[must_use]
    pub fn is_refused(&self, stack: StackId) -> bool {
        self.refuses && self.refused.contains(&stack)
    }

    pub fn drop_record(&mut self, stack: StackId) {
        self.before_late.remove(&stack);
        self.kept.remove(&stack);
    }

    /// Deletes a record as a user does who removes its finalizer.
    pub fn drop_by_user(&mut self, stack: StackId) {
        self.drop_record(stack);
        self.dropped.insert(stack);
    }

    /// Returns the records as a new run of the agent reads them: encoded and decoded by the agent's own code.
    #[must_use]
    pub fn load(&mut self, agent: AgentId) -> Vec<Record> {
        self.before_late.clear();
        self.forgotten.append(&mut self.dropped);
        self.refused.clear();
        self.kept
            .values()
            .map(|record| {
                let header = Header { entries: record.inventory.len(), packed: None, shards: Vec::new() };
                let object = to_object(record, agent, "record", header).expect("a record can be written");
                let inventory = pack(&*record.inventory).and_then(|packed| unpack(&packed)).expect("packed");
                Record { inventory: inventory.into(), ..from_object(object).expect("a record can be read") }
            })
            .collect()
    }
}
