//! Applies the result of a step to the record and to the progress.

use std::collections::HashSet;
use std::sync::Arc;

use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::contest;
use super::timing::{NEXT_CYCLE, PARKED, RIGHTS_CYCLE, backoff};
use crate::model::{
    ApplyReason, FailedStep, Failure, FailureClass, FoundEdits, Origin, Progress, Record, RetryState, Step,
    StepResult,
};
use crate::resource::is_prerequisite;

/// The number of quick retries for a missing prerequisite; later retries wait for an event, at most `PARKED`.
const QUICK_TRIES: u32 = 4;

/// Applies the result of a step. `record` is the record in the cluster, as far as this process knows it.
pub fn absorb(
    progress: &mut Progress,
    record: &mut Option<Record>,
    step: &Step,
    answer: &StepResult,
    now: Timestamp,
) {
    if let Some(key) = step.key() {
        progress.repairs.unswept.remove(key);
    }
    // Reads do not end the waiting, because they may be the only way to find out that an object is gone.
    if !matches!(step, Step::ReadObject { .. }) {
        progress.waiting = None;
    }
    match (step, answer) {
        (Step::WriteRecord(written), StepResult::RecordWritten { version }) => {
            let mut written = (**written).clone();
            written.version = Some(version.clone());
            let reported_repairs = written.reports.iter().any(|report| {
                matches!(report.transition, Transition::Repaired | Transition::Drifted)
                    && progress.repairs.reported_at.is_none_or(|last| report.at > last)
            });
            if reported_repairs {
                progress.repairs.count = 0;
                progress.repairs.reported_at = Some(now);
            }
            // Repairs may have ended while the record was written: the known inventory is then newer.
            let what = |record: &Record| {
                let made = record.made.clone();
                (record.sequence, record.applied, record.removal, record.checksum, made)
            };
            let is_closed = |known: &Record| {
                let mut before = known.suspensions.iter();
                before.any(|one| written.suspensions.iter().all(|other| other.id != one.id))
            };
            if record.as_ref().is_some_and(is_closed) {
                progress.lookups.edits.clear();
            }
            progress.delivery.has_unrecorded_uid = false;
            if let Some(known) = record.take()
                && what(&known) == what(&written)
                && !Arc::ptr_eq(&known.inventory, &written.inventory)
                && known.inventory.keys().eq(written.inventory.keys())
            {
                let stored = std::mem::replace(&mut written.inventory, known.inventory);
                for (key, entry) in written.inventory_mut() {
                    let stored = stored.get(key);
                    progress.delivery.has_unrecorded_uid |=
                        stored.is_some_and(|stored| stored.uid != entry.uid);
                    match stored {
                        // The intention to adopt an object. No repair changes such an entry.
                        Some(intended) if intended.digest.is_none() && intended.uid.is_some() => {
                            entry.clone_from(intended);
                        }
                        Some(other) if other.uid == entry.uid => entry.completed |= other.completed,
                        _ => {}
                    }
                }
            }
            progress.readiness.reported_at = Some(now);
            if written.applied == Some(written.sequence) && written.removal.is_none() {
                // Only a delivery needs these sets. Their memory is freed: each contains every key once more.
                progress.delivery.validated = HashSet::new();
                progress.delivery.written = HashSet::new();
            }
            *record = Some(written);
        }
        (Step::WriteRecord(_), StepResult::RecordFound(found)) => *record = Some((**found).clone()),
        (Step::DropRecord, StepResult::RecordDropped) => *record = None,
        (Step::FetchEarlier { .. }, StepResult::FetchedEarlier(_)) => {
            progress.delivery.earlier_requested = true;
        }
        (Step::ReadObject { key, .. }, StepResult::ObjectRead(seen)) => {
            // A successful read does not clear the failure of an apply; otherwise that failure would never be
            // reported.
            if !progress.failures.objects.get(key).is_some_and(RetryState::is_of_apply) {
                progress.failures.objects.remove(key);
            }
            progress.lookups.objects.insert(key.clone(), seen.clone());
        }
        (Step::ListContained { key, .. }, StepResult::Contained(foreign)) => {
            progress.failures.objects.remove(key);
            progress.lookups.contained.insert(key.clone(), foreign.clone());
        }
        (Step::CheckRights { .. }, StepResult::RightsChecked(lacking)) => {
            progress.lookups.missing_rights = Some(lacking.clone());
        }
        // The check failed: the delivery goes on, and its writes will show whether rights are missing.
        (Step::CheckRights { .. }, StepResult::Failed(_)) => {
            progress.lookups.missing_rights = Some(Vec::new());
        }
        (Step::Resolve { key, .. }, StepResult::Resolved) => {
            progress.failures.objects.remove(key);
            progress.lookups.served.insert(key.clone());
        }
        (Step::DryRun { desired, uid, .. }, StepResult::Valid { exists }) => {
            progress.failures.objects.remove(&desired.key);
            progress.delivery.validated.insert(desired.key.clone());
            if uid.is_none() && !exists {
                progress.lookups.objects.insert(desired.key.clone(), None);
            }
        }
        // The API server did not find the role of a binding: the dry run of the role has created nothing.
        (Step::DryRun { desired, .. }, StepResult::Failed(failure))
            if failure.reason == Reason::NotFound
                && desired.binds.as_ref().is_some_and(|bound| bound.in_stack) =>
        {
            progress.failures.objects.remove(&desired.key);
            progress.delivery.validated.insert(desired.key.clone());
        }
        (Step::DryRun { desired, .. }, StepResult::Failed(failure))
            if failure.class == FailureClass::Immutable
                && (desired.replace || is_replaced(record.as_ref(), &desired.key))
                && !is_prerequisite(&desired.key) =>
        {
            progress.failures.objects.remove(&desired.key);
            progress.delivery.validated.insert(desired.key.clone());
            progress.delivery.replace.insert(desired.key.clone());
        }
        (Step::Apply { desired, why, .. }, StepResult::Applied { seen, created }) => {
            let key = &desired.key;
            // A failure of another step, such as to find a kind, lasts until that step succeeds.
            let is_resolved = match why {
                ApplyReason::Deliver => true,
                ApplyReason::Repair | ApplyReason::Sweep { .. } => {
                    progress.failures.objects.get(key).is_some_and(RetryState::is_of_apply)
                }
                ApplyReason::PutBack => false,
            };
            if is_resolved {
                progress.failures.objects.remove(key);
            }
            progress.failures.put_back.remove(key);
            progress.lookups.objects.remove(key);
            progress.cleanup.deleted.remove(key);
            progress.delivery.replace.remove(key);
            match why {
                ApplyReason::Deliver => {
                    progress.delivery.written.insert(key.clone());
                }
                ApplyReason::Sweep { version } if *version == seen.version => {}
                ApplyReason::Repair | ApplyReason::PutBack | ApplyReason::Sweep { .. } => {
                    progress.repairs.count += 1;
                    let fight = contest::fought(progress.repairs.fights.get(key).copied(), now);
                    progress.repairs.fights.insert(key.clone(), fight);
                    if fight.rounds == 1 {
                        progress.repairs.rivals.remove(key);
                    }
                }
            }
            if let Some(entry) = record.as_mut().and_then(|record| record.inventory_mut().get_mut(key)) {
                // Another object than the recorded one. Its managedFields show after a crash, too, which client created it.
                if entry.uid.as_ref() != Some(&seen.uid) {
                    progress.delivery.has_unrecorded_uid = true;
                    entry.origin = if *created { Origin::Created } else { Origin::Adopted };
                }
                entry.uid = Some(seen.uid.clone());
                entry.fields = seen.fields;
                entry.digest = Some(desired.digest);
                entry.completed = seen.completed;
                entry.kind = desired.kind.clone();
            }
        }
        (Step::FindRivals { desired, .. }, StepResult::RivalsFound(rivals)) => {
            progress.repairs.rivals.insert(desired.key.clone(), rivals.clone());
        }
        (Step::ReadEdits { desired, .. }, StepResult::EditsRead(edits)) => {
            progress.failures.objects.remove(&desired.key);
            let found = edits.clone().map_or(FoundEdits::Unknown, FoundEdits::Patch);
            progress.lookups.edits.insert(desired.key.clone(), found);
        }
        (Step::ReadEdits { desired, .. }, StepResult::Gone) => {
            progress.failures.objects.remove(&desired.key);
            progress.lookups.edits.insert(desired.key.clone(), FoundEdits::Gone);
        }
        (Step::ReadDrift { desired, seen }, StepResult::EditsRead(edits)) => {
            progress.failures.objects.remove(&desired.key);
            let found = edits.clone().map_or(FoundEdits::Unknown, FoundEdits::Patch);
            progress.lookups.drift.insert(desired.key.clone(), (seen.clone(), found));
        }
        (Step::ReadDrift { desired, seen }, StepResult::Gone) => {
            progress.failures.objects.remove(&desired.key);
            progress.lookups.drift.insert(desired.key.clone(), (seen.clone(), FoundEdits::Gone));
        }
        // The object is named without its fields.
        (Step::ReadDrift { desired, seen }, StepResult::Failed(failure))
            if failure.class == FailureClass::Permanent =>
        {
            progress.lookups.drift.insert(desired.key.clone(), (seen.clone(), FoundEdits::Unknown));
        }
        // It will never be readable: the suspension ends without it.
        (Step::ReadEdits { desired, .. }, StepResult::Failed(failure))
            if failure.class == FailureClass::Permanent =>
        {
            progress.lookups.edits.insert(desired.key.clone(), FoundEdits::Unknown);
        }
        (Step::Diagnose { desired }, StepResult::Diagnosed(cause)) => {
            progress.readiness.causes.insert(desired.key.clone(), (now, cause.clone()));
        }
        // The repair goes on: only the names of the rivals are missing in the report.
        (Step::FindRivals { desired, .. }, StepResult::Failed(_)) => {
            progress.repairs.rivals.insert(desired.key.clone(), Vec::new());
        }
        // The cause that was found earlier still counts; the Pods are read again later.
        (Step::Diagnose { desired }, StepResult::Failed(_)) => {
            progress.readiness.causes.entry(desired.key.clone()).or_insert((now, None)).0 = now;
        }
        (Step::Delete { key, uid, .. }, StepResult::DeleteAccepted) => {
            progress.failures.objects.remove(key);
            progress.lookups.objects.remove(key);
            progress.cleanup.deleted.insert(key.clone(), uid.clone());
        }
        (Step::Delete { key, .. } | Step::Release { key, .. }, StepResult::Gone) => {
            progress.failures.objects.remove(key);
            progress.lookups.objects.insert(key.clone(), None);
        }
        // It has no owner now: read it, and adopt it again.
        (Step::Reclaim { key, .. }, StepResult::Reclaimed | StepResult::Gone) => {
            progress.failures.objects.remove(key);
            progress.lookups.objects.remove(key);
        }
        (Step::Release { key, because, .. }, StepResult::Released) => {
            progress.failures.objects.remove(key);
            progress.cleanup.left.insert(key.clone(), because.clone());
        }
        (step, StepResult::Failed(failure)) => fail(progress, step, failure, now),
        _ => {}
    }
}

fn fail(progress: &mut Progress, step: &Step, failure: &Failure, now: Timestamp) {
    if matches!(step, Step::Fetch) {
        progress.failures.fetch =
            Some(retry(progress.failures.fetch.as_ref(), FailedStep::Other, failure, now));
    }
    // For all other steps that are not about one object, `StackState` decides when to retry.
    let Some(key) = step.key() else { return };
    // The object has changed, or may have changed because the failed request was executed nevertheless: read
    // the object again before the next decision.
    if failure.class == FailureClass::Conflict || matches!(step, Step::Apply { .. } | Step::Delete { .. }) {
        progress.lookups.objects.remove(key);
        progress.lookups.contained.remove(key);
    }
    let failures = match step {
        Step::Apply { why: ApplyReason::PutBack, .. } => &mut progress.failures.put_back,
        _ => &mut progress.failures.objects,
    };
    let of = match step {
        Step::Apply { .. } | Step::DryRun { .. } => FailedStep::Apply,
        Step::Resolve { .. } => FailedStep::Resolve,
        _ => FailedStep::Other,
    };
    // A definition whose kind has not been found for long may fail to be repaired now.
    let is_same = |earlier: &&RetryState| (earlier.of == FailedStep::Resolve) == (of == FailedStep::Resolve);
    let retry = retry(failures.get(key).filter(is_same), of, failure, now);
    failures.insert(key.clone(), retry);
}

fn retry(earlier: Option<&RetryState>, of: FailedStep, failure: &Failure, now: Timestamp) -> RetryState {
    let attempts = earlier.map_or(0, |retry| retry.attempts) + 1;
    let since = earlier.map_or(now, |retry| retry.since);
    let pause = match failure.class {
        FailureClass::Permanent if failure.reason.is_refused_permission() => RIGHTS_CYCLE,
        FailureClass::Permanent | FailureClass::Immutable => NEXT_CYCLE,
        // The event about a new definition may come before the API server serves its kind: a few quick
        // retries, then longer waits.
        FailureClass::Missing if attempts <= QUICK_TRIES => backoff(attempts, None) / 4,
        FailureClass::Missing => PARKED,
        FailureClass::Conflict if attempts <= 3 => jiff::SignedDuration::ZERO,
        FailureClass::Conflict | FailureClass::Transient => backoff(attempts, failure.retry_after),
    };
    RetryState { failure: failure.clone(), of, attempts, since, retry_at: now + pause }
}

/// Returns whether the delivery replaces the Job.
fn is_replaced(record: Option<&Record>, key: &Key) -> bool {
    record.and_then(|record| record.job(key)).is_some_and(|step| step.replaces.is_some())
}

#[cfg(test)]
mod tests;
