//! Waves that wait: what comes later is not written before everything that comes earlier is ready.
//!
//! They wait if the stack says so, and Helm hooks always do. A wave that becomes unready after later ones were written does not
//! matter, and repairs never wait. After its time, a wave that is not ready is a failure; the delivery goes on when it is ready.

use std::collections::BTreeMap;

use brokkr_api::reason::{Reason, Wave};
use brokkr_api::report::{ObjectNote, Transition};
use brokkr_api::stacks::WAVE_WAIT_DEFAULT;
use jiff::SignedDuration;

use super::jobs::{self, JobState};
use super::open;
use super::report::{and_more, blocked, note, report_once, summary};
use super::timing::{REASON_REPORTS, SLOW_AFTER, due};
use crate::model::wave_clock::COUNTS;
use crate::model::{Content, DesiredObject, Plan, RunOutcome, Situation, Stage, Step};
use crate::resource::{is_prerequisite, object_ref};

/// Returns the wave that an object waits with: without waiting, all waves are one.
pub(super) fn group(situation: &Situation<'_>, desired: &DesiredObject) -> Wave {
    let waits = situation.goal.target.wave_wait_seconds.is_some() || desired.hook.is_some();
    if waits { desired.wave } else { Wave::Number(0) }
}

/// Returns the first wave that later ones wait for; nothing later may be written.
pub(super) fn first_unready(situation: &Situation<'_>, content: &Content) -> Option<Wave> {
    let waits = situation.goal.target.wave_wait_seconds.is_some();
    if !waits && content.objects.values().all(|desired| desired.hook.is_none()) {
        return None;
    }
    let mut groups: BTreeMap<Wave, bool> = BTreeMap::new();
    let mut begun: Option<Wave> = None;
    for desired in content.objects.values().filter(|desired| !is_prerequisite(&desired.key)) {
        let wave = group(situation, desired);
        let is_group_ready = groups.entry(wave).or_insert(true);
        *is_group_ready = *is_group_ready && is_ready(situation, content, desired);
        if situation.progress.delivery.written.contains(&desired.key) {
            begun = begun.max(Some(wave));
        }
    }
    let last = groups.keys().next_back().copied();
    // Those before one that has begun have been ready.
    let must_be_ready =
        |wave: Wave| Some(wave) >= begun && (Some(wave) != last || !matches!(wave, Wave::Number(_)));
    groups.into_iter().find(|(wave, is_ready)| !is_ready && must_be_ready(*wave)).map(|(wave, _)| wave)
}

/// Returns whether the object is applied and ready; of a Job that is a step, whether its end is recorded.
fn is_ready(situation: &Situation<'_>, content: &Content, desired: &DesiredObject) -> bool {
    let key = &desired.key;
    if open::is_open(situation, content, desired) || situation.progress.failures.objects.contains_key(key) {
        return false;
    }
    if let Some(state) = jobs::state(situation, desired) {
        return state == JobState::Ended { outcome: RunOutcome::Complete, recorded: true };
    }
    if open::is_done(situation, content, desired) {
        return true;
    }
    let entry = situation.record.and_then(|record| record.inventory.get(key));
    let is_applied = entry.is_some_and(|entry| entry.digest == Some(desired.digest));
    let stack = situation.goal.target.stack_id;
    is_applied
        && situation.observed.seen(key).map_or_else(
            || situation.was_completed_before_it_was_gone(key),
            |seen| seen.is_ready(situation.now) && seen.other_owner(situation.agent, stack, key).is_none(),
        )
}

/// Waits for a wave of which everything is written.
pub(super) fn wait(situation: &Situation<'_>, content: &Content, wave: Wave) -> Option<Plan> {
    let record = situation.record?;
    if let Some(ended) = jobs::recorded(situation, content, record) {
        return Some(Plan::with(Stage::Apply, vec![Step::WriteRecord(Box::new(ended))]));
    }
    let members = || content.objects.values().filter(|desired| group(situation, desired) == wave);
    let retry_at = |step: &Step| {
        let retry = situation.progress.failures.objects.get(step.key()?)?;
        Some(retry.retry_at).filter(|at| !due(*at, situation.now))
    };
    let (later, spent): (Vec<Step>, Vec<Step>) = members()
        .filter_map(|desired| delete_failed(situation, desired))
        .partition(|step| retry_at(step).is_some());
    if !spent.is_empty() {
        return Some(Plan::with(Stage::Apply, spent));
    }
    let unready: Vec<&DesiredObject> = members()
        .map(|desired| &**desired)
        .filter(|desired| !is_prerequisite(&desired.key) && !is_ready(situation, content, desired))
        .collect();
    let seconds = situation.goal.target.wave_wait_seconds.unwrap_or(WAVE_WAIT_DEFAULT);
    let limit = SignedDuration::from_secs(seconds.into());
    let waited = situation.wave_clock.waited(situation.goal.target.sequence_id, wave);
    let has_failed = |desired: &&DesiredObject| {
        matches!(jobs::state(situation, desired), Some(JobState::Ended { outcome: RunOutcome::Failed, .. }))
    };
    let has_a_failed_job = unready.iter().any(has_failed);
    let notes: Vec<ObjectNote> = unready.iter().map(|desired| unready_note(situation, desired)).collect();
    // Only the user can end this wait, so its time does not count.
    if !has_a_failed_job && unready.iter().all(|desired| situation.suspensions.cover(&desired.key)) {
        return Some(blocked(situation, Stage::Apply, &Reason::Suspended, &summary(&notes), notes));
    }
    let is_over = waited >= limit || has_a_failed_job;
    let (transition, reason) = if is_over {
        (Transition::Failed, Reason::WaveNotReady { wave })
    } else {
        (Transition::Blocked, Reason::WaitingForWave { wave })
    };
    let names = unready.first().map(|first| first.key.display_name().to_string()).unwrap_or_default();
    let message = reason.message_with(and_more(names, unready.len().saturating_sub(1)));

    let last = record.outcome.as_ref().filter(|outcome| {
        outcome.transition == transition
            && outcome.reason == reason
            && outcome.sequence == situation.goal.target.sequence_id
    });
    // The names change with every object that becomes ready.
    let again = last.and(situation.progress.readiness.reported_at).map(|at| at + REASON_REPORTS);
    let again = again.filter(|at| !due(*at, situation.now));
    let mut plan = if !is_over && waited < SLOW_AFTER.min(limit / 2) {
        Plan::waiting(Stage::Apply, message).wake(Some(situation.now + (SLOW_AFTER.min(limit / 2) - waited)))
    } else if let Some(at) = again {
        let is_news = last.is_some_and(|last| last.message != message);
        Plan::waiting(Stage::Apply, message).wake(is_news.then_some(at))
    } else {
        let plan = report_once(situation, Stage::Apply, transition, &reason, &message, notes);
        Plan { waiting_for: Some(message), ..plan }
    };
    if !is_over {
        let is_outdated = situation.wave_clock.is_outdated(record.wait.as_ref(), limit);
        if plan.steps.is_empty() && is_outdated {
            plan.steps.push(Step::WriteRecord(Box::new(record.clone())));
        }
        plan = plan.wake(Some(situation.now + COUNTS.min(limit - waited)));
    }
    let graces = unready.iter().filter_map(|one| Some(situation.observed.seen(&one.key)?.later.as_ref()?.0));
    plan = plan.wake(graces.filter(|at| !due(*at, situation.now)).min());
    plan = plan.wake(later.iter().filter_map(retry_at).min());
    Some(Plan { waits_for_wave: Some(wave), ..plan })
}

/// Deletes a hook that has failed, if its policy says so; its end is recorded.
fn delete_failed(situation: &Situation<'_>, desired: &DesiredObject) -> Option<Step> {
    let hook = desired.hook.filter(|hook| hook.delete_when_failed)?;
    let failed = JobState::Ended { outcome: RunOutcome::Failed, recorded: true };
    let is_failed = hook.delete_when_failed && jobs::state(situation, desired) == Some(failed);
    let seen = situation.observed.seen(&desired.key).filter(|seen| is_failed && !seen.deleting)?;
    let is_deleted = situation.progress.cleanup.deleted.get(&desired.key) == Some(&seen.uid);
    let (key, kind, uid) = (desired.key.clone(), desired.kind.clone(), seen.uid.clone());
    (!is_deleted).then_some(Step::Delete { key, kind, uid })
}

fn unready_note(situation: &Situation<'_>, desired: &DesiredObject) -> ObjectNote {
    let key = &desired.key;
    if situation.suspensions.cover(key) {
        return note(key, Reason::Suspended);
    }
    let failed = jobs::failure_of_deleted(situation, desired);
    // If the deletion of a failed Job fails, that is not why the wave is not ready.
    if let Some(retry) = situation.progress.failures.objects.get(key).filter(|_| failed.is_none()) {
        return super::report::failure_note(key, &retry.failure);
    }
    situation.observed.seen(key).map_or_else(
        || note(key, failed.unwrap_or(Reason::Missing)),
        |seen| {
            let health = seen.health_at(situation.now);
            let (reason, message) = (health.reason.clone(), health.message.clone());
            ObjectNote { object: object_ref(key), reason, message }
        },
    )
}

#[cfg(test)]
mod tests;
