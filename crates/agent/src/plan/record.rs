//! Builds the record to write at each transition of a stack, for example when it is applied or removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::reason::{LeftBecause, Message, Reason, Wave};
use brokkr_api::report::{Hops, ObjectNote, Transition};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::dispose::{self, Receipt};
use super::report::{announced, note, report, summary};
use super::{jobs, readiness};
use crate::model::{Content, DesiredObject, Entry, Made, Origin, Record, SeenObject, Situation};
use crate::resource::is_prerequisite;

/// Returns the value of the annotation `brokkr.io/sequence`, which changes only together with the checksum.
pub(super) fn stamp_sequence(record: Option<&Record>, content: &Content) -> SequenceId {
    match record {
        Some(record) if record.checksum == Some(content.checksum) => record.stamp,
        _ => content.sequence,
    }
}

/// Returns the record of the intention to apply this content: it lists the old and the new objects before any
/// of them is written.
pub(super) fn intention<'a>(
    situation: &Situation<'_>,
    content: &Content,
    existing: impl Fn(&Key) -> Option<&'a SeenObject>,
) -> Record {
    let mut record = situation.current_record();
    let target = &situation.goal.target;
    if record.version.is_none() || record.sequence != content.sequence || record.removal.is_some() {
        jobs::intend(situation, content, &mut record, &existing);
    }
    record.wave_wait_seconds = target.wave_wait_seconds;
    record.stamp = stamp_sequence(situation.record, content);
    record.checksum = Some(content.checksum);
    if record.sequence != content.sequence || record.hops.published.is_none() || record.removal.is_some() {
        record.hops = Hops {
            fetched: Some(content.fetched.max(target.released_at)),
            verified: Some(content.verified.max(content.fetched).max(target.released_at)),
            ..announced(target)
        };
    }
    if record.made.sequence != content.sequence {
        let absent =
            |desired: &&Arc<DesiredObject>| is_prerequisite(&desired.key) && existing(&desired.key).is_none();
        let prerequisites =
            content.objects.values().filter(absent).map(|desired| desired.key.clone()).collect();
        record.made = Made { sequence: content.sequence, prerequisites };
    }
    record.sequence = content.sequence;
    record.removal = None;
    record.total = u32::try_from(content.objects.len()).unwrap_or(u32::MAX);
    let inventory = record.inventory_mut();
    for desired in content.objects.values() {
        let seen = existing(&desired.key);
        let entry = inventory.entry(desired.key.clone()).or_insert_with(|| Entry {
            kind: desired.kind.clone(),
            // An existing object counts as adopted, even if it has our metadata: it is not in the record, so
            // it is unknown who created it.
            origin: if seen.is_none() { Origin::Created } else { Origin::Adopted },
            uid: None,
            digest: None,
            fields: None,
            completed: false,
            wave: 0,
        });
        (entry.kind, entry.wave) = (desired.kind.clone(), deletion_wave(desired.wave));
        // The object was not applied yet, or it is not the one that was applied: only its uid is known.
        if let Some(seen) = seen
            && entry.uid.as_ref() != Some(&seen.uid)
        {
            if is_news(situation, &desired.key, entry, seen) {
                let inherited = situation.other_stacks.holder(&desired.key).and_then(|holder| holder.origin);
                entry.origin = inherited.unwrap_or(Origin::Adopted);
            }
            entry.uid = Some(seen.uid.clone());
            (entry.digest, entry.fields, entry.completed) = (None, None, false);
        }
    }
    // A Job that is about to be pruned runs again if a later version contains it.
    for (key, entry) in inventory {
        entry.completed &= content.objects.contains_key(key) || content.dormant.contains_key(key);
    }
    record
}

/// Returns the wave in the order of deletions: hooks are deleted before or after all others.
fn deletion_wave(wave: Wave) -> i64 {
    match wave {
        Wave::HooksBefore(_) => i64::MIN,
        Wave::Number(number) => number,
        Wave::HooksAfter(_) => i64::MAX,
    }
}

/// Returns whether the object is new to the record: its uid differs from the uid in the record, and it does
/// not have the metadata of this stack. So this stack did not create it.
pub(super) fn is_news(situation: &Situation<'_>, key: &Key, entry: &Entry, seen: &SeenObject) -> bool {
    entry.uid.as_ref() != Some(&seen.uid)
        && !seen.belongs_to(situation.agent, situation.goal.target.stack_id, key)
}

/// Returns the record, if the grant of the target, or what it says about drift, has changed since it was written.
pub(super) fn with_new_grant(situation: &Situation<'_>) -> Option<Record> {
    let grant = &situation.goal.target.grant;
    let drift = situation.goal.target.drift;
    let record = situation.record.filter(|record| record.grant != *grant || record.drift != drift)?;
    Some(record.clone())
}

/// D1: returns the record after the new namespaces of a failed delivery were deleted or left in place. It no
/// longer lists them as new, so they are not deleted a second time.
pub(super) fn undone(situation: &Situation<'_>, record: &Record) -> Record {
    let mut record = record.clone();
    for key in std::mem::take(&mut record.made.prerequisites) {
        if situation.observed.seen(&key).is_none()
            && let Some(entry) = record.inventory_mut().get_mut(&key)
        {
            (entry.uid, entry.digest, entry.fields) = (None, None, None);
        }
    }
    record
}

pub(super) fn removal_intention(situation: &Situation<'_>) -> Record {
    let mut record = situation.current_record();
    let target = &situation.goal.target;
    record.removal = target.removal;
    // Its Jobs run again if the stack comes back before everything is removed.
    for entry in record.inventory_mut().values_mut() {
        entry.completed = false;
    }
    record.sequence = record.sequence.max(target.sequence_id);
    record.jobs.clear();
    record.first = None;
    record.applied = None;
    record.outcome = None;
    record.hops = announced(target);
    record
}

/// Returns the record of a complete delivery.
pub(super) fn settled(situation: &Situation<'_>, content: &Content, record: &Record) -> Record {
    let mut record = record.clone();
    let stays = |key: &Key| content.keeps(key) || dispose::lingers(situation, key);
    let mut leftovers = BTreeMap::new();
    if !record.inventory.keys().all(stays) {
        leftovers = record.inventory_mut().extract_if(.., |key, _| !stays(key)).collect();
    }
    // A record of an earlier release has an applied version, but does not say which one was the first.
    if record.applied.replace(content.sequence).is_none() {
        record.first.get_or_insert(content.sequence);
    }
    let after =
        |earlier: Option<Timestamp>| earlier.map_or(situation.now, |earlier| earlier.max(situation.now));
    record.hops.applied = Some(after(record.hops.verified));
    record.hops.pruned = Some(after(record.hops.applied));
    let left: Vec<String> =
        dispose::receipts(situation, leftovers.iter(), |key| dispose::needed_in(content, key))
            .filter_map(|(key, receipt)| match receipt {
                // Another stack has taken it over, as planned.
                Receipt::Gone(_) | Receipt::Untouched | Receipt::Left(LeftBecause::OwnedByOther(_)) => None,
                Receipt::Left(because) => {
                    Some(format!("{}: {}", key.display_name(), Reason::Left(because).sentence()))
                }
            })
            .collect();
    let (ready, worst) = readiness::of(situation, content);
    record.ready = ready;
    let left_out: Vec<ObjectNote> = content
        .left_out
        .iter()
        .map(|(key, hook)| note(key, Reason::HookLeftOut { hook: hook.clone() }))
        .collect();
    let left = left.into_iter().chain(left_out.first().map(|_| summary(&left_out).to_string()));
    let left = Message::new(left.collect::<Vec<_>>().join("; "));
    report(situation, &mut record, Transition::Applied, &Reason::None, &left, left_out);
    if worst.is_none() {
        record.hops.healthy = Some(after(record.hops.pruned));
        report(situation, &mut record, Transition::Healthy, &Reason::None, &Message::default(), Vec::new());
    }
    record
}

/// Returns the record without the objects that another stack took over.
pub(super) fn handed_over(situation: &Situation<'_>, content: &Content, record: &Record) -> Record {
    let mut record = record.clone();
    record.inventory_mut().retain(|key, _| content.keeps(key) || dispose::lingers(situation, key));
    record
}

pub(super) fn removed(situation: &Situation<'_>, record: &Record) -> Record {
    let mut record = record.clone();
    let inventory = std::mem::take(&mut record.inventory);
    let (mut gone, mut left) = (Vec::new(), Vec::new());
    for (key, receipt) in dispose::receipts(situation, inventory.iter(), |_| None) {
        match receipt {
            Receipt::Gone(uid) => gone.push(note(key, Reason::Gone { uid: uid.to_string() })),
            Receipt::Left(because) => left.push(note(key, Reason::Left(because))),
            Receipt::Untouched => {}
        }
    }
    record.ready = 0;
    record.total = u32::try_from(gone.len()).unwrap_or(u32::MAX);
    record.hops.pruned =
        Some(record.hops.released.map_or(situation.now, |released| released.max(situation.now)));
    let message = summary(&left);
    // Objects that are left come first; deleted ones follow as far as the limit allows.
    let notes = [left, gone].concat();
    // The sequence id of the removal; for a stack that no longer targets this agent, the applied one.
    record.sequence = record.sequence.max(situation.goal.target.sequence_id);
    report(situation, &mut record, Transition::Removed, &Reason::None, &message, notes);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixtures::{SEQUENCE, Stack, second};

    #[test]
    fn a_version_after_one_that_an_earlier_release_has_applied_is_never_the_install() {
        let mut stack = Stack::deployment();
        stack.record.applied = None;
        let settle = |stack: &Stack| settled(&stack.situation(1, 10), &stack.content(), &stack.record);
        assert!(settle(&stack).is_install(SEQUENCE));
        let before = SequenceId(SEQUENCE.0 - 1);
        (stack.record.applied, stack.record.first) = (Some(before), Some(before));
        assert!(settle(&stack).is_install(before));
        stack.record.first = None;
        assert!(!settle(&stack).is_install(SEQUENCE));
    }

    #[test]
    fn the_hops_of_a_new_version_are_those_of_its_content_and_never_before_its_release() {
        let mut stack = Stack::deployment();
        stack.record.sequence = SequenceId(SEQUENCE.0 - 1);
        let content = stack.content_mut();
        (content.fetched, content.verified) = (second(3), second(4));
        for (released, hops) in [(2, [2, 3, 4]), (9, [9, 9, 9])] {
            stack.goal.target.released_at = second(released);
            let record = intention(&stack.situation(10, 10), &stack.content(), |_| None);
            let Hops { released, fetched, verified, .. } = record.hops;
            assert_eq!([released, fetched, verified], hops.map(|at| Some(second(at))));
        }
    }
}
