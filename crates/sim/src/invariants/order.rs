//! J5: order holds, also under transient errors. Nothing of a later wave or rank is written before everything earlier of the same
//! stack is written, or has failed for good, or has failed for so long that it was reported. If the waves of a stack wait, or if they
//! are of hooks, everything in earlier ones is ready before the first object of a later one is written.

use std::collections::BTreeMap;

use brokkr_agent::model::{DesiredObject, Record};
use brokkr_agent::resource::{is_job, is_prerequisite};
use brokkr_api::ids::Checksum;
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::Key;

use super::failures::Failures;
use crate::world::{Checked, World};

/// What was written for the newest version of each stack.
#[derive(Clone, Debug, Default)]
pub struct Order(BTreeMap<StackId, (SequenceId, BTreeMap<Key, Checksum>)>);

impl Order {
    pub fn written(&mut self, stack: StackId, sequence: SequenceId, desired: &DesiredObject) {
        let (version, written) = self.0.entry(stack).or_default();
        if *version != sequence {
            (*version, *written) = (sequence, BTreeMap::new());
        }
        written.insert(desired.key.clone(), desired.digest);
    }

    fn has_written(&self, record: &Record, desired: &DesiredObject) -> bool {
        self.0.get(&record.stack).is_some_and(|(sequence, written)| {
            *sequence == record.sequence && written.get(&desired.key) == Some(&desired.digest)
        })
    }

    /// Checks a write of a delivery that is about to be carried out.
    pub fn check(
        &self,
        world: &World,
        record: &Record,
        desired: &DesiredObject,
        failures: &Failures,
    ) -> Checked {
        // Equal content gets only new metadata, after everything that changes, and Namespaces and definitions come
        // first, whatever their wave.
        let is_changed = |desired: &DesiredObject| {
            let entry = record.inventory.get(&desired.key);
            entry.and_then(|entry| entry.digest) != Some(desired.digest)
        };
        if is_prerequisite(&desired.key) || !is_changed(desired) {
            return Ok(());
        }
        let Some(content) = world.broker.content(record.sequence) else { return Ok(()) };
        let content = content.in_phase(record.is_install(record.sequence));
        let waits = world.broker.waits_for_waves(record.stack);
        let written = content.objects.values().filter(|one| self.has_written(record, one));
        let begun = written.map(|one| one.wave).max();
        let unready = content.objects.values().find(|earlier| {
            earlier.wave < desired.wave
                && Some(earlier.wave) >= begun
                && (waits || earlier.hook.is_some() || desired.hook.is_some())
                && !is_prerequisite(&earlier.key)
                && !is_ready(world, earlier)
        });
        if let Some(earlier) = unready {
            return Err(format!("J5: {} is written before {} is ready", desired.key, earlier.key));
        }
        let place = |desired: &DesiredObject| (desired.wave, desired.rank);
        let is_live = |desired: &DesiredObject| {
            let live = world.server.objects.get(&desired.key).and_then(|object| object.applied.as_ref());
            live.is_some_and(|applied| applied.body == desired.body)
        };
        let open = content.objects.values().find(|earlier| {
            place(earlier) < place(desired)
                && is_changed(earlier)
                && !self.has_written(record, earlier)
                && !is_live(earlier)
                && (!is_job(&earlier.key) || !is_ready(world, earlier))
                && !failures.has_given_up(record.stack, record.sequence, &earlier.key, world.now())
        });
        match open {
            Some(earlier) => Err(format!(
                "J5: {} is written before {}, which has not failed for good",
                desired.key, earlier.key
            )),
            None => Ok(()),
        }
    }
}

/// Returns whether the object is live and ready; of a Job, whether it has ever completed.
pub fn is_ready(world: &World, desired: &DesiredObject) -> bool {
    let server = &world.server;
    if is_job(&desired.key) {
        return server.completed_jobs.iter().any(|(key, body)| *key == desired.key && *body == desired.body);
    }
    let live = server.objects.get(&desired.key).and_then(|object| object.applied.as_ref());
    live.is_some_and(|applied| applied.body == desired.body) && !server.unready.contains(&desired.key)
}
