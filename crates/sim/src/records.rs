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
}

impl Records {
    #[must_use]
    pub fn get(&self, stack: StackId) -> Option<&Record> {
        self.kept.get(&stack)
    }

    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.kept.values()
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
        self.kept.remove(&stack);
    }

    /// Returns the records as a new run of the agent reads them: encoded and decoded by the agent's own code.
    #[must_use]
    pub fn load(&self, agent: AgentId) -> Vec<Record> {
        self.kept
            .values()
            .map(|record| {
                let header = Header { entries: record.inventory.len(), packed: None, shards: Vec::new() };
                let object = to_object(record, agent, "record", header).expect("a record can be written");
                let inventory = pack(&record.inventory).and_then(|packed| unpack(&packed)).expect("packed");
                Record { inventory, ..from_object(object).expect("a record can be read") }
            })
            .collect()
    }
}
