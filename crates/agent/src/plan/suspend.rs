//! Suspensions: what they cover is neither applied, repaired nor deleted.
//!
//! The record says what is suspended, so that it is left alone after a restart and without the broker, too. When a suspension is over,
//! what other clients have changed meanwhile is read and reported first; only then is anything repaired.

use std::collections::BTreeSet;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{NOTES, ObjectNote, Transition};
use brokkr_manifest::Key;

use super::report::{blocked, note, report, summary};
use super::timing::{SLOW_AFTER, due};
use super::{contest, steady};
use crate::model::suspension::ActiveSuspension;
use crate::model::{Content, Entry, FoundEdits, Plan, Record, Situation, Stage, Step};
use crate::resource::KindIn;

/// The most that the patches of one report take, as JSON.
const LONGEST_PATCHES: usize = 64 * 1024;

/// Returns what to do about suspensions that begin or end, before anything else.
pub(super) fn plan(situation: &Situation<'_>) -> Option<Plan> {
    let record = situation.record.filter(|_| situation.busy.is_empty())?;
    end(situation, record).or_else(|| begin(situation, record))
}

/// Records new suspensions.
fn begin(situation: &Situation<'_>, record: &Record) -> Option<Plan> {
    let is_recorded = |id| record.suspensions.iter().any(|recorded| recorded.id == id);
    let new: Vec<&ActiveSuspension> =
        situation.suspensions.iter().filter(|one| !one.is_over && !is_recorded(one.id)).collect();
    let Some(first) = new.first() else {
        let is_outdated = situation.suspensions.are_outdated(&record.suspensions);
        let write = is_outdated.then(|| Step::WriteRecord(Box::new(record.clone())))?;
        return Some(Plan::with(stage(situation), vec![write]));
    };
    let mut next = record.clone();
    let message = covered(first);
    say(situation, &mut next, Transition::Suspended, &Reason::Suspended, &message, Vec::new());
    Some(Plan::with(stage(situation), vec![Step::WriteRecord(Box::new(next))]))
}

/// Reports what other clients have changed, and forgets the suspensions that are over.
fn end(situation: &Situation<'_>, record: &Record) -> Option<Plan> {
    let is_recorded = |id| record.suspensions.iter().any(|recorded| recorded.id == id);
    let over: Vec<&ActiveSuspension> =
        situation.suspensions.iter().filter(|one| one.is_over && is_recorded(one.id)).collect();
    let first = over.first()?;
    let covers = |key: &Key| over.iter().any(|suspension| suspension.covers(key));
    let covered = record.inventory.iter().filter(|(key, _)| covers(key));
    // After a restart, the objects are not observed yet. Those of a kind that cannot be watched end nothing.
    let unwatched: BTreeSet<KindIn> = covered
        .clone()
        .filter(|(key, _)| !situation.observed.synced(key))
        .map(|(key, entry)| KindIn::of(key, &entry.kind))
        .collect();
    let patience = situation.progress.waiting_since(stage(situation)).unwrap_or(situation.now) + SLOW_AFTER;
    if !unwatched.is_empty() && !due(patience, situation.now) {
        let waiting = Plan::waiting(stage(situation), Reason::SuspensionEnded { id: first.id }.message());
        return Some(Plan { watch: unwatched, ..waiting.wake(Some(patience)) });
    }
    let since = over.iter().map(|suspension| suspension.since).min().unwrap_or(situation.now);
    let applied: Vec<(&Key, &Entry)> = covered.filter(|(_, entry)| entry.digest.is_some()).collect();
    if let Some(plan) = fetch_manifests(situation, record, &applied) {
        return Some(plan);
    }
    // Every object is read: `managedFields` that are not ours, such as those of an added container, are not observed.
    let mut plan = Plan::new(stage(situation));
    for (key, entry) in &applied {
        let desired = situation.goal.as_applied(key, entry.digest);
        let is_read = situation.progress.lookups.edits.contains_key(*key);
        let is_unwatched = !situation.observed.synced(key);
        let Some((_, desired)) = desired.filter(|_| !is_read && !is_unwatched) else { continue };
        match situation.progress.failures.objects.get(*key) {
            Some(retry) if !due(retry.retry_at, situation.now) => plan = plan.wake(Some(retry.retry_at)),
            _ => plan.steps.push(Step::ReadEdits { desired: desired.clone(), since }),
        }
    }
    if !plan.steps.is_empty() || plan.wake_at.is_some() {
        plan.waiting_for = Some(Reason::SuspensionEnded { id: first.id }.message());
        return Some(plan);
    }
    let mut room = LONGEST_PATCHES;
    let drifted: BTreeSet<&Key> = contest::drifted(situation).collect();
    let mut edit = |key: &Key| match situation.progress.lookups.edits.get(key) {
        Some(FoundEdits::Gone) if situation.is_completed_and_gone(key) => None,
        Some(FoundEdits::Gone) => Some(Reason::DeletedByOthers),
        Some(FoundEdits::Patch(patch)) if patch.as_object().is_some_and(serde_json::Map::is_empty) => None,
        Some(FoundEdits::Patch(patch)) => {
            let length = patch.to_string().len();
            let patch = (length <= room).then(|| patch.clone());
            room = room.saturating_sub(if patch.is_some() { length } else { 0 });
            Some(Reason::Edited { patch })
        }
        Some(FoundEdits::Unknown) => Some(Reason::Edited { patch: None }),
        None => drifted.contains(key).then_some(Reason::Edited { patch: None }),
    };
    let notes: Vec<ObjectNote> = applied.iter().filter_map(|(key, _)| Some(note(key, edit(key)?))).collect();
    let mut next = record.clone();
    let message = summary(&notes);
    say(
        situation,
        &mut next,
        Transition::Resumed,
        &Reason::SuspensionEnded { id: first.id },
        &message,
        notes,
    );
    Some(Plan::with(stage(situation), vec![Step::WriteRecord(Box::new(next))]))
}

/// Fetches the manifests of the applied objects, if some of them are not known: after a restart, they are not.
fn fetch_manifests(situation: &Situation<'_>, record: &Record, applied: &[(&Key, &Entry)]) -> Option<Plan> {
    let is_known = |(key, entry): &(&Key, &Entry)| situation.goal.as_applied(key, entry.digest).is_some();
    if applied.iter().all(is_known) {
        return None;
    }
    let target = &situation.goal.target;
    if target.removal.is_none()
        && situation.goal.content.is_none()
        && situation.progress.failures.fetch.is_none()
    {
        return Some(Plan::with(Stage::Fetch, vec![Step::Fetch]));
    }
    let sequence = record.applied.filter(|applied| *applied != target.sequence_id)?;
    let is_new = situation.goal.fallback.is_none() && !situation.progress.delivery.earlier_requested;
    is_new.then(|| Plan::with(stage(situation), vec![Step::FetchEarlier { sequence }]))
}

/// Reports a change of the suspensions. The state of the stack is still the one that was reported before.
fn say(
    situation: &Situation<'_>,
    record: &mut Record,
    transition: Transition,
    reason: &Reason,
    message: &Message,
    notes: Vec<ObjectNote>,
) {
    record.suspensions = situation.suspensions.to_record();
    let outcome = record.outcome.clone();
    // The number of objects in a report is limited.
    let mut parts: Vec<Vec<ObjectNote>> = notes.chunks(NOTES).map(<[_]>::to_vec).collect();
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    for part in parts {
        report(situation, record, transition.clone(), reason, message, part);
    }
    record.outcome = outcome;
}

/// Waits for suspended objects of a version that is otherwise applied.
pub(super) fn wait_for_objects(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let covered = content.objects.keys().filter(|key| situation.suspensions.cover(key));
    let open = covered.filter(|key| !situation.progress.delivery.written.contains(*key));
    let notes: Vec<ObjectNote> = open.map(|key| note(key, Reason::Suspended)).collect();
    if notes.is_empty() {
        return None;
    }
    Some(blocked(situation, Stage::Apply, &Reason::Suspended, &summary(&notes), notes))
}

/// Returns the stage that the stack is in: a suspension does not change it.
fn stage(situation: &Situation<'_>) -> Stage {
    let content = situation.goal.content.as_ref();
    let is_applied = content.is_some_and(|content| steady::applied(situation, content).is_some());
    if is_applied { Stage::Steady } else { Stage::Suspended }
}

/// Names what a suspension covers.
fn covered(suspension: &ActiveSuspension) -> Message {
    match &suspension.object {
        Some(object) => Reason::Suspended.message_with(object),
        None => Reason::Suspended.message(),
    }
}

#[cfg(test)]
mod tests;
