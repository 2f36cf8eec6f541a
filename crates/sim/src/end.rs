//! The final state of a story: the part that is compared between runs, and the conditions that must hold in any case.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_agent::grant;
use brokkr_agent::model::{Body, Content, Entry, Origin, Record};
use brokkr_agent::resource::is_prerequisite;
use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::report::Transition;
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::Key;

use crate::invariants::truth;
use crate::objects::namespace_key;
use crate::server::{Applied, Object};
use crate::world::{Checked, World};

/// The final state, without the parts that may differ between two runs: uids, versions, times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub objects: BTreeMap<Key, ObjectEnd>,
    pub records: BTreeMap<StackId, RecordEnd>,
    pub reported: BTreeSet<(StackId, SequenceId, Transition)>,
    /// Stacks whose record has ever named an object. After a crash, the agent does not know others, and does not remove them.
    recorded: BTreeSet<StackId>,
    /// Whether a user has deleted a record that the agent could not create again. Then nothing can be compared.
    is_record_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEnd {
    pub agent: Option<String>,
    pub stack: Option<String>,
    pub content: Option<Body>,
    pub drift: bool,
    pub deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEnd {
    pub sequence: SequenceId,
    pub applied: Option<SequenceId>,
    pub removal: Option<Removal>,
    /// The origin, if something depends on it, and what was applied.
    pub inventory: BTreeMap<Key, (Option<Origin>, Option<Checksum>)>,
}

impl End {
    #[must_use]
    pub fn of(world: &World) -> Self {
        let objects = world.server.objects.iter().map(|(key, object)| {
            let end = ObjectEnd {
                agent: object.marks.agent.clone(),
                stack: object.marks.stack.clone(),
                content: object.applied.as_ref().map(|applied| applied.body.clone()),
                drift: object.drift > 0 && object.marks.agent.is_some(),
                deleting: object.is_deleting(),
            };
            (key.clone(), end)
        });
        let records = world.records.all().map(|record| {
            let lines = record.inventory.iter();
            let end = RecordEnd {
                sequence: record.sequence,
                applied: record.applied,
                removal: record.removal,
                // How much of an unfinished delivery is recorded may differ between two runs.
                inventory: lines
                    .map(|(key, entry)| {
                        let origin = is_prerequisite(key).then_some(entry.origin);
                        let digest = entry.digest.filter(|_| record.applied == Some(record.sequence));
                        (key.clone(), (origin, digest))
                    })
                    .collect(),
            };
            (record.stack, end)
        });
        let lasting = [Transition::Applied, Transition::Removed];
        let reported = world.broker.reports.values().filter(|report| lasting.contains(&report.transition));
        Self {
            objects: objects.collect(),
            records: records.collect(),
            recorded: world.records.named_objects.clone(),
            is_record_lost: !world.records.forgotten.is_empty(),
            reported: reported
                .map(|report| (report.stack_id, report.sequence_id, report.transition.clone()))
                .collect(),
        }
    }

    /// Returns whether a run with a fault may end like this, if the run without it ended like `self`.
    #[must_use]
    pub fn allows(&self, other: &Self) -> bool {
        let reported = |end: &Self| -> BTreeSet<_> {
            let in_both = |stack: &StackId| self.recorded.contains(stack) && other.recorded.contains(stack);
            end.reported.iter().filter(|(stack, ..)| in_both(stack)).cloned().collect()
        };
        let is_equal = self.objects == other.objects
            && self.records == other.records
            && reported(self) == reported(other);
        is_equal || self.is_record_lost || other.is_record_lost
    }
}

/// Checks the conditions that must hold once everything has settled, whatever happened before.
pub fn check(world: &World) -> Checked {
    let agent = world.agent.to_string();
    for stack in world.broker.stacks() {
        match world.broker.desired(stack) {
            None => check_removed(world, stack)?,
            Some(content) => check_delivered(world, stack, content)?,
        }
    }
    for (key, object) in &world.server.objects {
        let recorded = world.records.all().any(|record| record.inventory.contains_key(key));
        let is_forgotten =
            world.records.forgotten.iter().any(|stack| object.marks.stack == Some(stack.to_string()));
        if object.is_marked(&agent) && object.owner.is_none() && !recorded && !is_forgotten {
            return Err(format!("S9: {key} has our ownership metadata and is in no record"));
        }
    }
    Ok(())
}

/// J4: checks that no report is wrong while something keeps the agent from seeing or recording the state of its stacks.
pub fn check_truth(world: &World) -> Checked {
    world.broker.stacks().try_for_each(|stack| truth::check_settled(world, stack))
}

fn check_removed(world: &World, stack: StackId) -> Checked {
    let is_blocked = world.server.objects.values().any(Object::is_deleting);
    if is_blocked || is_frozen(world, stack) || world.records.forgotten.contains(&stack) {
        return Ok(());
    }
    if let Some(record) = world.records.get(stack).filter(|record| has_late_successor(world, record)) {
        let is_reported =
            record.outcome.as_ref().is_some_and(|outcome| outcome.transition == Transition::Blocked);
        if !is_reported {
            return Err(format!("D4: {stack} waits for another stack, and no report says so"));
        }
        return Ok(());
    }
    if world.records.get(stack).is_some() || world.run.state.stacks.contains_key(&stack) {
        return Err(format!("E2: {stack} should be gone, but is not"));
    }
    let left = world.server.objects.iter().find(|(_, object)| {
        // Without the label, no agent may delete it.
        let is_labelled = object.marks.agent.is_some();
        is_labelled && object.owner.is_none() && object.marks.stack == Some(stack.to_string())
    });
    left.map_or(Ok(()), |(key, _)| Err(format!("E2: {key} is left over from a stack that is gone")))
}

/// Returns whether something is left of a removed stack that is contained in another stack, which is kept from being delivered.
/// The removal waits until that takes it over, with everything that is deleted later.
fn has_late_successor(world: &World, record: &Record) -> bool {
    let is_left = |(key, entry): &(&Key, &Entry)| {
        let object = world.server.objects.get(*key).filter(|_| !is_prerequisite(key));
        object.is_some_and(|object| {
            object.marks.stack == Some(record.stack.to_string()) || entry.uid.as_ref() == Some(&object.uid)
        })
    };
    let mut left = record.inventory.iter().filter(is_left);
    let is_awaited = |key: &Key| {
        let mut others = world.broker.stacks().filter(|other| *other != record.stack);
        others.any(|other| {
            let content = world.broker.desired(other).filter(|content| content.objects.contains_key(key));
            let applied = world.records.get(other).and_then(|record| record.applied);
            content.is_some_and(|content| applied != Some(content.sequence))
        })
    };
    left.any(|(key, _)| is_awaited(key))
}

fn check_delivered(world: &World, stack: StackId, content: &Content) -> Checked {
    let record = world.records.get(stack);
    if record.is_none_or(|record| record.applied != Some(content.sequence)) {
        let Some(excuse) = excuse(world, stack, content) else {
            return Err(format!("L1: {stack} should have {}, and nothing prevents it", content.sequence));
        };
        let reported = record.and_then(|record| record.outcome.as_ref());
        let reported = reported
            .filter(|reported| matches!(reported.transition, Transition::Failed | Transition::Blocked));
        return match reported {
            Some(reported) if reported.sequence == content.sequence => Ok(()),
            _ => Err(format!(
                "D4: {stack} does not have {}, because {excuse}, and no report says so",
                content.sequence
            )),
        };
    }
    for (key, desired) in &content.objects {
        let object = world.server.objects.get(key);
        // A complete Job that is gone, or has lost the label and looks gone, is not run again.
        let is_finished =
            record.and_then(|record| record.inventory.get(key)).is_some_and(|entry| entry.completed);
        if is_finished && object.is_none_or(|object| object.marks.agent.is_none()) {
            continue;
        }
        let Some(object) = object else {
            if excuse(world, stack, content).is_some() {
                continue;
            }
            return Err(format!("F2: {key} is missing"));
        };
        let theirs = object.marks.stack.as_ref().is_some_and(|owner| *owner != stack.to_string());
        let right = object.applied.as_ref().is_some_and(|applied| applied.body == desired.body)
            && object.drift == 0
            && !theirs;
        if !right && excuse(world, stack, content).is_none() {
            return Err(format!("F2: {key} is not as it should be"));
        }
    }
    Ok(())
}

/// Returns whether the grant of the stack does not cover one of its objects.
fn is_frozen(world: &World, stack: StackId) -> bool {
    let desired = world.broker.desired(stack).into_iter().flat_map(|content| content.objects.keys());
    let recorded = world.records.get(stack).into_iter().flat_map(|record| record.inventory.keys());
    !grant::refused(world.broker.grant_of(stack), desired.chain(recorded)).is_empty()
}

/// Returns what prevents a stack from having its content, if anything does.
fn excuse(world: &World, stack: StackId, content: &Content) -> Option<String> {
    if is_frozen(world, stack) {
        return Some("its grant does not cover it".to_owned());
    }
    content.objects.iter().find_map(|(key, desired)| {
        let object = world.server.objects.get(key);
        let body = Applied::read(desired);
        if body.is_broken() {
            return Some(format!("{key} is invalid"));
        }
        let other = |owner: &Option<String>, own: &str| owner.as_ref().is_some_and(|owner| owner != own);
        if object.is_some_and(|object| {
            other(&object.marks.agent, &world.agent.to_string())
                || other(&object.marks.stack, &stack.to_string())
        }) {
            return Some(format!("{key} has another owner"));
        }
        if world.records.all().any(|record| record.stack != stack && record.inventory.contains_key(key)) {
            return Some(format!("{key} is claimed by another stack"));
        }
        let applied = object.and_then(|object| object.applied.as_ref());
        if !desired.replace && applied.is_some_and(|applied| !applied.allows(&body)) {
            return Some(format!("{key} is immutable"));
        }
        if object.is_some_and(Object::is_deleting) {
            return Some(format!("{key} is being deleted"));
        }
        let home = key.namespace.as_ref().map(|name| namespace_key(name));
        if home.is_some_and(|home| !world.server.objects.contains_key(&home)) {
            return Some(format!("{key} has no namespace"));
        }
        if world.is_blind_to(&desired.kind.name()) {
            return Some(format!("the kind of {key} cannot be watched"));
        }
        (!world.server.serves(&desired.kind)).then(|| format!("the kind of {key} is not served"))
    })
}
