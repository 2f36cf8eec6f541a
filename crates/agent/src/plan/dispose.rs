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
use crate::model::{Entry, Origin, Plan, Record, SeenObject, Situation, Stage, Step};
use crate::resource::{is_prerequisite, object_ref};

enum Disposal {
    /// Nothing is left to do.
    Done,
    /// Another stack of this agent contains it now, and takes it over with its apply.
    Inherited(ObjectNote),
    Act(Step),
    /// Deleted but still present, or to be deleted once the contents of the other stacks are known.
    Wait(ObjectNote),
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
    for group in deletion_stages(keys) {
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
                Disposal::Done => {}
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
    let plan = report::wait(situation, stage, patience, &Reason::WaitingForDeletion, &message, blockers);
    // No event reports the deletion of an object without our label: read it again, more often at first.
    // `report::wait` sets a time to wake as long as the wait is not reported yet.
    let reported = plan.wake_at.is_none();
    plan.wake(Some(situation.now + if reported { SLOW_CHECKS } else { RELEASE_CHECKS }))
}

fn dispose(
    situation: &Situation<'_>,
    key: &Key,
    entry: &Entry,
    needed_by: impl Fn(&Key) -> Option<Key>,
) -> Disposal {
    if situation.progress.cleanup.left.contains_key(key) {
        return Disposal::Done;
    }
    let seen = match (situation.observed.seen(key), situation.progress.lookups.objects.get(key)) {
        (Some(seen), _) => seen,
        // An object that lost its label looks deleted to the watch: read it.
        (None, None) => {
            return Disposal::Act(Step::ReadObject { key: key.clone(), kind: entry.kind.clone() });
        }
        (None, Some(None)) => return Disposal::Done,
        (None, Some(Some(seen))) if was_applied(entry, seen) => seen,
        // C5: another client created an object with that name, or we never wrote it.
        (None, Some(Some(_))) => return Disposal::Done,
    };
    let stack = situation.goal.target.stack_id;
    let ours = seen.belongs_to(situation.agent, stack, key) || was_applied(entry, seen);
    // C4, C5 and B6: it belongs to another stack or agent, or it has an owner (an ownerReference) that
    // controls its deletion.
    if !ours || seen.other_owner(situation.agent, stack, key).is_some() || seen.has_owner {
        return Disposal::Done;
    }
    if seen.deleting {
        return Disposal::Wait(deletion_note(key, seen));
    }
    let release = |because: LeftBecause| {
        let (key, kind, uid) = (key.clone(), entry.kind.clone(), seen.uid.clone());
        Disposal::Act(Step::Release { key, kind, uid, because })
    };
    if let Some(successor) = situation.other_stacks.successor(key) {
        return Disposal::Inherited(report::note(key, Reason::HandOver { stack: successor }));
    }
    if situation.goal.target.removal == Some(Removal::Released) {
        return release(LeftBecause::Requested);
    }
    if seen.keep {
        return release(LeftBecause::KeepAnnotation);
    }
    // C6: a Namespace or definition is deleted only if Brokkr created it and it contains nothing of others.
    if is_prerequisite(key) {
        if entry.origin == Origin::Adopted {
            return release(LeftBecause::Preexisting);
        }
        if let Some(upper) = needed_by(key) {
            return release(LeftBecause::NeededBy(Box::new(object_ref(&upper))));
        }
        if situation.other_stacks.is_prerequisite_of_another_stack(key) {
            return release(LeftBecause::NeededByAnotherStack);
        }
        match situation.progress.lookups.contained.get(key) {
            None => {
                return Disposal::Act(Step::ListContained { key: key.clone(), kind: entry.kind.clone() });
            }
            Some(foreign) if !foreign.is_empty() => return release(LeftBecause::Contains(foreign.clone())),
            Some(_) => {}
        }
    }
    if situation.progress.cleanup.deleted.contains(key) {
        return Disposal::Wait(deletion_note(key, seen));
    }
    if situation.other_stacks.has_pending_content() {
        return Disposal::Wait(report::note(key, Reason::OtherContentPending));
    }
    Disposal::Act(Step::Delete { key: key.clone(), kind: entry.kind.clone(), uid: seen.uid.clone() })
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
        finalizers => Reason::Finalizer { finalizers: finalizers.to_vec() },
    };
    report::note(key, reason)
}
