//! Jobs that are steps: each runs once for each digest of its manifest.
//!
//! When the delivery begins, the record says which Jobs it wants to run, and which existing ones these replace. The end of a run is
//! recorded before anything that comes later is written, so that neither a crash nor the end of the Job's time to live runs it again.

use brokkr_api::ids::Checksum;
use brokkr_api::reason::Reason;
use brokkr_health::HealthState;
use brokkr_manifest::Key;

use crate::model::{Content, DesiredObject, JobStep, Record, RunOutcome, SeenObject, Situation};
use crate::resource::is_job;

/// How far a Job has come that is a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// It has to run, or runs.
    Open,
    Ended {
        outcome: RunOutcome,
        recorded: bool,
    },
}

/// Returns the state of a Job that is a step; none if it is none.
pub(super) fn state(situation: &Situation<'_>, desired: &DesiredObject) -> Option<JobState> {
    let record = situation.record?;
    let step = record.job(&desired.key)?;
    if step.digest != desired.digest {
        return Some(JobState::Open);
    }
    if let Some(outcome) = step.outcome() {
        return Some(JobState::Ended { outcome, recorded: true });
    }
    let ended = |outcome| Some(JobState::Ended { outcome, recorded: false });
    let entry = record.inventory.get(&desired.key).filter(|entry| entry.digest == Some(desired.digest));
    match situation.observed.seen(&desired.key) {
        Some(seen) if is_replaced(situation, &desired.key, seen) => Some(JobState::Open),
        Some(seen) if seen.completed => ended(RunOutcome::Complete),
        Some(seen) if has_failed(situation, seen) => ended(RunOutcome::Failed),
        Some(_) => Some(JobState::Open),
        None if entry.is_some_and(|entry| entry.completed)
            || entry.is_some() && situation.was_completed_before_it_was_gone(&desired.key) =>
        {
            ended(RunOutcome::Complete)
        }
        None => Some(JobState::Open),
    }
}

fn has_failed(situation: &Situation<'_>, seen: &SeenObject) -> bool {
    !seen.deleting && seen.health_at(situation.now).state == HealthState::Failed
}

/// Returns whether the Job has run, and is not to run again.
pub(super) fn has_ended(situation: &Situation<'_>, desired: &DesiredObject) -> bool {
    matches!(state(situation, desired), Some(JobState::Ended { recorded: true, .. }))
}

/// Returns whether the live Job is one that the delivery replaces.
pub(super) fn is_replaced(situation: &Situation<'_>, key: &Key, seen: &SeenObject) -> bool {
    let step = situation.record.and_then(|record| record.job(key));
    step.is_some_and(|step| step.replaces.as_ref() == Some(&seen.uid))
}

/// Returns whether the Job is not repaired, nor created again, with the manifest of the record.
pub(super) fn is_outdated(
    situation: &Situation<'_>,
    record: &Record,
    key: &Key,
    digest: Option<Checksum>,
) -> bool {
    let Some(step) = record.job(key) else { return false };
    // Any Job that does not have to go has the manifest of the step, also if the answer that said so was lost.
    Some(step.digest) != digest
        || step.outcome().is_some()
            && situation.observed.seen(key).is_none_or(|seen| is_replaced(situation, key, seen))
}

/// Decides, when a delivery begins, which Jobs are steps of it.
pub(super) fn intend<'a>(
    situation: &Situation<'_>,
    content: &Content,
    record: &mut Record,
    existing: impl Fn(&Key) -> Option<&'a SeenObject>,
) {
    let before = std::mem::take(&mut record.jobs);
    let target = &situation.goal.target;
    for desired in content.objects.values().filter(|desired| is_job(&desired.key)) {
        let key = &desired.key;
        let known = before.iter().find(|step| step.job == *key);
        let entry = record.inventory.get(key);
        let seen = existing(key).filter(|seen| seen.belongs_to(situation.agent, record.stack, key));
        let runs_again = target
            .rerun
            .iter()
            .any(|job| job.name == key.name && Some(job.namespace.as_str()) == key.namespace.as_deref());
        // A rerun that an earlier version began.
        let is_pending = known.is_some_and(|step| {
            step.replaces.is_some() && step.replaces.as_ref() == seen.map(|seen| &seen.uid)
        });
        // What was a step stays one: a rollback to a version whose waves do not wait neither fails at a Job that cannot be changed, nor
        // runs it again.
        let is_step = target.wave_wait_seconds.is_some() || desired.hook.is_some() || known.is_some();
        if !is_step && !runs_again {
            continue;
        }
        let runs = known.map(|step| step.runs.clone()).unwrap_or_default();
        let mut step = JobStep { job: key.clone(), digest: desired.digest, replaces: None, runs };
        if let Some(entry) = entry
            && let Some(digest) = entry.digest.filter(|_| entry.completed && !is_pending)
        {
            step.note(digest, RunOutcome::Complete);
        }
        let of_seen = seen.and_then(|seen| match known {
            Some(step) if step.replaces.as_ref() != Some(&seen.uid) => Some(step.digest),
            Some(_) => None,
            None => entry.filter(|entry| entry.uid.as_ref() == Some(&seen.uid))?.digest,
        });
        if let Some(digest) = of_seen.filter(|_| seen.is_some_and(|seen| seen.completed)) {
            step.note(digest, RunOutcome::Complete);
        }
        if runs_again {
            step.forget(desired.digest);
        }
        if runs_again || of_seen != Some(desired.digest) {
            step.replaces = seen.map(|seen| seen.uid.clone());
        }
        if (runs_again || step.replaces.is_some())
            && let Some(entry) = record.inventory_mut().get_mut(key)
        {
            entry.completed = false;
        }
        record.jobs.push(step);
    }
    record.jobs.extend(before.into_iter().filter(|step| content.dormant.contains_key(&step.job)));
}

/// Returns the record with the runs that have ended, if there are new ones.
pub(super) fn recorded(situation: &Situation<'_>, content: &Content, record: &Record) -> Option<Record> {
    let mut next = record.clone();
    let mut is_new = false;
    for step in &mut next.jobs {
        let Some(desired) = content.objects.get(&step.job) else { continue };
        let Some(JobState::Ended { outcome, recorded: false }) = state(situation, desired) else { continue };
        // A failed Job that stays shows it itself.
        let stays = || desired.hook.is_none_or(|hook| !hook.delete_when_failed) && !has_time_to_live(desired);
        if outcome == RunOutcome::Complete || !stays() {
            step.note(desired.digest, outcome);
            is_new = true;
        }
    }
    is_new.then_some(next)
}

/// Returns whether Kubernetes deletes the Job some time after it has ended.
fn has_time_to_live(desired: &DesiredObject) -> bool {
    desired.body.to_value()["spec"]["ttlSecondsAfterFinished"].is_u64()
}

/// Returns the reason of a Job that has failed and was deleted.
pub(super) fn failure_of_deleted(situation: &Situation<'_>, desired: &DesiredObject) -> Option<Reason> {
    let failed = JobState::Ended { outcome: RunOutcome::Failed, recorded: true };
    (state(situation, desired) == Some(failed)).then_some(Reason::BackoffLimitExceeded)
}

#[cfg(test)]
mod tests;
