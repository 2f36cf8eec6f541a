//! Decides how to dispose of an object that a stack no longer needs.
//!
//! All deletions by prunes and removals are decided here. An object is deleted only if it certainly
//! belongs to this stack and is certainly no longer needed; otherwise it is left.

use brokkr_api::envelope::Removal;
use brokkr_api::reason::{LeftBecause, Reason};
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;
use brokkr_manifest::order::deletion_stages;

use super::report;
use super::timing::{BLOCKED_AFTER, RELEASE_CHECKS, SLOW_AFTER, SLOW_CHECKS, due};
use crate::model::{Content, Entry, Origin, Plan, Record, SeenObject, Situation, Stage, Step, Uid};
use crate::resource::{is_contained_in, is_prerequisite, object_ref};

enum Disposal {
    /// Nothing is left to do.
    Done(Receipt),
    /// Another stack of this agent contains it now, and takes it over with its apply.
    Inherited(ObjectNote),
    Act(Step),
    /// Deleted but still present, or to be deleted once the contents of the other stacks are known.
    Wait(ObjectNote),
}

/// J3: what is known about an object for which nothing is left to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// The object with this uid is gone: Brokkr deleted it, or it was seen to be absent.
    Gone(Uid),
    /// It stays in the cluster.
    Left(LeftBecause),
    /// Brokkr never wrote it.
    Untouched,
}

/// Disposes of these objects, group by group; `None` once all are deleted or left on purpose.
/// `needed_by` returns an object that stays and depends on the one in question.
pub(super) fn all(
    situation: &Situation<'_>,
    stage: Stage,
    record: &Record,
    keys: impl Iterator<Item = Key>,
    needed_by: impl Fn(&Key) -> Option<Key>,
) -> Option<Plan> {
    let wave = |key: &Key| record.inventory.get(key).map_or(0, |entry| entry.wave);
    for group in deletion_stages(keys.map(|key| (wave(&key), key))) {
        let mut plan = Plan::new(stage);
        let mut blockers = Vec::new();
        for key in group {
            let Some(entry) = record.inventory.get(&key) else { continue };
            if let Some(retry) = situation.progress.failures.objects.get(&key)
                && !due(retry.retry_at, situation.now)
            {
                plan = plan.wake(Some(retry.retry_at));
                blockers.push(report::failure_note(&key, &retry.failure));
                continue;
            }
            match dispose(situation, &key, entry, &needed_by) {
                Disposal::Done(_) => {}
                Disposal::Act(step) => plan.steps.push(step),
                // A removal waits until nothing is left; a prune does not wait for another stack, which may be broken.
                Disposal::Inherited(note) if stage == Stage::Remove => blockers.push(note),
                Disposal::Inherited(_) => {}
                Disposal::Wait(note) => blockers.push(note),
            }
        }
        if !plan.steps.is_empty() {
            return Some(plan);
        }
        if !blockers.is_empty() {
            let waiting = wait(situation, stage, blockers).wake(plan.wake_at);
            return Some(Plan { depends_on_others: true, ..waiting });
        }
    }
    None
}

/// Waits. If the waiting lasts, it is reported once, with the blocking objects.
fn wait(situation: &Situation<'_>, stage: Stage, mut blockers: Vec<ObjectNote>) -> Plan {
    // Deletions that only take time come last, because the others need attention.
    let only_slow =
        |note: &ObjectNote| matches!(note.reason, Reason::Terminating | Reason::OtherContentPending);
    blockers.sort_by_key(only_slow);
    let patience = if blockers.first().is_some_and(only_slow) { SLOW_AFTER } else { BLOCKED_AFTER };
    let message = report::summary(&blockers);
    let is_suspended = blockers.iter().any(|note| note.reason == Reason::Suspended);
    let reason = if is_suspended { Reason::Suspended } else { Reason::WaitingForDeletion };
    let plan = report::wait(situation, stage, patience, &reason, &message, blockers);
    // No event reports the deletion of an object without our label: read it again, more often at first.
    // `report::wait` sets a time to wake as long as the wait is not reported yet.
    let reported = plan.wake_at.is_none();
    plan.wake(Some(situation.now + if reported { SLOW_CHECKS } else { RELEASE_CHECKS }))
}

/// Returns what happened to the objects of the record, once nothing is left to do for them.
pub(super) fn receipts<'a>(
    situation: &'a Situation<'_>,
    objects: impl Iterator<Item = (&'a Key, &'a Entry)> + 'a,
    needed_by: impl Fn(&Key) -> Option<Key> + 'a,
) -> impl Iterator<Item = (&'a Key, Receipt)> + 'a {
    objects.filter_map(move |(key, entry)| match dispose(situation, key, entry, &needed_by) {
        Disposal::Done(receipt) => Some((key, receipt)),
        Disposal::Inherited(_) | Disposal::Act(_) | Disposal::Wait(_) => None,
    })
}

fn dispose(
    situation: &Situation<'_>,
    key: &Key,
    entry: &Entry,
    needed_by: impl Fn(&Key) -> Option<Key>,
) -> Disposal {
    if let Some(because) = situation.progress.cleanup.left.get(key) {
        return Disposal::Done(Receipt::Left(because.clone()));
    }
    if situation.suspensions.cover(key) {
        return Disposal::Wait(report::note(key, Reason::Suspended));
    }
    let stack = situation.goal.target.stack_id;
    let read = || Disposal::Act(Step::ReadObject { key: key.clone(), kind: entry.kind.clone() });
    let lookup = situation.progress.lookups.objects.get(key);
    let seen = match (situation.observed.seen(key), lookup) {
        (Some(seen), Some(Some(read))) if read.version > seen.version => read,
        (Some(seen), _) | (None, Some(Some(seen))) => seen,
        (None, Some(None)) => return Disposal::Done(absent(situation, key, entry)),
        // An object that lost its label looks deleted to the watch.
        (None, None) => return read(),
    };
    // J3: a list may be out of date, and show an earlier object of this name or an earlier owner. Only a read proves that nothing
    // is left to do.
    let done = |receipt: Receipt| if lookup.is_some() { Disposal::Done(receipt) } else { read() };
    let ours = seen.belongs_to(situation.agent, stack, key) || was_applied(entry, seen);
    if let Some(owner) = seen.other_owner(situation.agent, stack, key).filter(|_| was_applied(entry, seen)) {
        return done(Receipt::Left(LeftBecause::OwnedByOther(owner.to_string())));
    }
    // C4, C5: another client created an object with that name, or we never wrote it.
    if !ours {
        return done(if entry.uid.as_ref() == Some(&seen.uid) {
            Receipt::Untouched
        } else {
            absent(situation, key, entry)
        });
    }
    // B6: its owner (an ownerReference) controls its deletion.
    if seen.has_owner {
        return done(Receipt::Left(LeftBecause::OwnerReference));
    }
    if seen.deleting {
        return Disposal::Wait(deletion_note(key, seen));
    }
    if let Some(successor) = situation.other_stacks.successor(key) {
        return Disposal::Inherited(report::note(key, Reason::HandOver { stack: successor }));
    }
    // K1: the fence allows no change of an object without the label. An earlier run has released it, or a user wants to
    // keep it.
    let is_labelled = seen.agent.is_some();
    let release = |because: LeftBecause| {
        let (key, kind, uid) = (key.clone(), entry.kind.clone(), seen.uid.clone());
        Disposal::Act(Step::Release { key, kind, uid, because })
    };
    match kept_because(situation, key, entry, seen, needed_by) {
        Some(because) if is_labelled => return release(because),
        Some(because) => return done(Receipt::Left(because)),
        None if !is_labelled => return done(Receipt::Left(LeftBecause::LabelRemoved)),
        None => {}
    }
    // C6: a Namespace or definition is deleted only if it contains nothing of others.
    if is_prerequisite(key) {
        match situation.progress.lookups.contained.get(key) {
            None => {
                return Disposal::Act(Step::ListContained { key: key.clone(), kind: entry.kind.clone() });
            }
            Some(foreign) if !foreign.is_empty() => return release(LeftBecause::Contains(foreign.clone())),
            Some(_) => {}
        }
    }
    if situation.progress.cleanup.deleted.get(key) == Some(&seen.uid) {
        return Disposal::Wait(deletion_note(key, seen));
    }
    if situation.other_stacks.has_pending_content() {
        return Disposal::Wait(report::note(key, Reason::OtherContentPending));
    }
    Disposal::Act(Step::Delete { key: key.clone(), kind: entry.kind.clone(), uid: seen.uid.clone() })
}

/// Returns why the object must not be deleted, as far as that is known without a request.
fn kept_because(
    situation: &Situation<'_>,
    key: &Key,
    entry: &Entry,
    seen: &SeenObject,
    needed_by: impl Fn(&Key) -> Option<Key>,
) -> Option<LeftBecause> {
    if situation.goal.target.removal == Some(Removal::Released) {
        return Some(LeftBecause::Requested);
    }
    if seen.keep {
        return Some(LeftBecause::KeepAnnotation);
    }
    if !is_prerequisite(key) {
        return None;
    }
    // C6: a Namespace or definition is deleted only if Brokkr created it.
    if entry.origin == Origin::Adopted {
        return Some(LeftBecause::Preexisting);
    }
    if let Some(upper) = needed_by(key) {
        return Some(LeftBecause::NeededBy(Box::new(object_ref(&upper))));
    }
    let needed = situation.other_stacks.is_prerequisite_of_another_stack(key);
    needed.then_some(LeftBecause::NeededByAnotherStack)
}

/// Returns the receipt for an object of the record that does not exist. Without a digest we never wrote it; its uid may be
/// that of an object which was only going to be adopted.
fn absent(situation: &Situation<'_>, key: &Key, entry: &Entry) -> Receipt {
    let applied = entry.uid.as_ref().filter(|_| entry.digest.is_some());
    let uid = situation.progress.cleanup.deleted.get(key).or(applied);
    uid.map_or(Receipt::Untouched, |uid| Receipt::Gone(uid.clone()))
}

/// Returns an object of the content that depends on this one.
pub(super) fn needed_in(content: &Content, key: &Key) -> Option<Key> {
    content.objects.keys().find(|other| is_contained_in(other, key)).cloned()
}

/// Returns whether we wrote this object. The uid alone is no proof: the uid of an existing object is recorded
/// before our first write to it, the digest only after it.
fn was_applied(entry: &Entry, seen: &SeenObject) -> bool {
    entry.digest.is_some() && entry.uid.as_ref() == Some(&seen.uid)
}

/// Returns whether an object stays in the record because another stack wants it, but has not taken it over
/// yet.
pub(super) fn lingers(situation: &Situation<'_>, key: &Key) -> bool {
    let ours = situation
        .observed
        .seen(key)
        .is_some_and(|seen| seen.belongs_to(situation.agent, situation.goal.target.stack_id, key));
    ours && situation.other_stacks.successor(key).is_some()
}

fn deletion_note(key: &Key, seen: &SeenObject) -> ObjectNote {
    let reason = match seen.finalizers.as_slice() {
        [] => Reason::Terminating,
        // A Job goes after its Pods.
        [only] if only == "foregroundDeletion" => Reason::Terminating,
        finalizers => Reason::Finalizer { finalizers: finalizers.to_vec() },
    };
    report::note(key, reason)
}

#[cfg(test)]
mod tests {
    use brokkr_health::HealthState;

    use super::*;
    use crate::plan::fixtures::Stack;

    #[test]
    fn f7_the_deletion_of_a_job_after_its_pods_only_takes_time() {
        let key = Stack::of("batch", "Job").key;
        let reason = |finalizers: &[&str]| {
            let finalizers = finalizers.iter().map(|name| (*name).to_owned()).collect();
            deletion_note(&key, &SeenObject { finalizers, ..Stack::seen_as(HealthState::Ready) }).reason
        };
        assert_eq!(reason(&["foregroundDeletion"]), Reason::Terminating);
        let held = reason(&["foregroundDeletion", "example.com/keep"]);
        assert!(matches!(held, Reason::Finalizer { .. }), "{held:?}");
    }
}
