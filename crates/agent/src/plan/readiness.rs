//! F6: readiness is observed, not assumed. It is reported when it changes, with the most specific cause.
//!
//! Healthy means stable. A container that exits at once is ready for a moment, so a stack counts as healthy only after all
//! its workloads have been ready for a while without interruption, and for longer after a crash.

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{ConditionKind, ConditionStatus, ObjectNote, Transition};
use brokkr_health::HealthState;
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::report::{report, summary};
use super::timing::{
    DEGRADED_AFTER, ORDINARY_START, REASON_REPORTS, REPAIR_REPORTS, SLOW_AFTER, SLOW_ROLLOUT,
    STABLE_AFTER_CRASH, due,
};
use super::{contest, drift, jobs, retry};
use crate::model::{Content, Record, RunOutcome, SeenObject, Situation};
use crate::resource::{is_job, object_ref};

/// The unready object to name in a report.
pub(super) struct Worst {
    pub key: Key,
    pub reason: Reason,
    pub message: Message,
    state: HealthState,
    explanation: Explanation,
}

/// What is known about the cause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Explanation {
    /// The Pods were not read since the stack became unready.
    NotRead,
    /// The Pods show no cause, or the object has no Pods.
    StatusOnly,
    /// Found in the Pods.
    Cause,
}

/// Returns how many objects are ready, and the worst of the others. If all are ready, but not for long
/// enough, the worst is a workload that has to stay ready for longer.
pub(super) fn of(situation: &Situation<'_>, content: &Content) -> (u32, Option<Worst>) {
    let (mut ready, mut worst): (u32, Option<Worst>) = (0, None);
    for key in content.objects.keys() {
        match unready(situation, content, key) {
            None => ready += 1,
            Some(found) => {
                let rank = |worst: &Worst| {
                    (worst.explanation == Explanation::Cause, worst.state == HealthState::Failed)
                };
                if worst.as_ref().is_none_or(|worst| rank(worst) < rank(&found)) {
                    worst = Some(found);
                }
            }
        }
    }
    (ready, worst.or_else(|| unstable(situation, content)))
}

fn unready(situation: &Situation<'_>, content: &Content, key: &Key) -> Option<Worst> {
    let worst = |reason: Reason, message: Message, state, explanation| {
        Some(Worst { key: key.clone(), reason, message, state, explanation })
    };
    let of_status = |reason, message, state| worst(reason, message, state, Explanation::StatusOnly);
    let refused =
        situation.progress.failures.objects.get(key).filter(|retry| retry::is_final(&retry.failure));
    if let Some(retry) = refused {
        let message = Reason::RepairFailed.message_with(&retry.failure.message);
        return of_status(retry.failure.reason.clone(), message, HealthState::Failed);
    }
    match situation.observed.seen(key) {
        Some(seen) if seen.other_owner(situation.agent, situation.goal.target.stack_id, key).is_some() => {
            let reason = Reason::OwnedByOther { owner: None };
            of_status(reason.clone(), reason.message(), HealthState::Failed)
        }
        Some(seen) if seen.is_ready(situation.now) => None,
        _ if situation.is_completed_and_gone(key) || is_past(situation, content, key) => None,
        None => {
            let desired = content.objects.get(key);
            match desired.and_then(|desired| jobs::failure_of_deleted(situation, desired)) {
                Some(reason) => of_status(reason.clone(), reason.message(), HealthState::Failed),
                None => of_status(Reason::Missing, Reason::Missing.message(), HealthState::Unknown),
            }
        }
        Some(seen) => {
            let health = seen.health_at(situation.now);
            match cause(situation, key, seen) {
                Some(Some((reason, message))) => {
                    let state = state_with_cause(situation, &reason, health.state);
                    worst(reason, message, state, Explanation::Cause)
                }
                read => {
                    let has_pods = content.objects.get(key).is_some_and(|desired| desired.kind.has_pods());
                    let explanation = if read.is_none() && has_pods {
                        Explanation::NotRead
                    } else {
                        Explanation::StatusOnly
                    };
                    worst(health.reason.clone(), health.message.clone(), health.state, explanation)
                }
            }
        }
    }
}

/// Returns whether the object was needed during the delivery only, or has run before.
fn is_past(situation: &Situation<'_>, content: &Content, key: &Key) -> bool {
    let Some(desired) = content.objects.get(key) else { return false };
    let is_recorded = situation.record.is_some_and(|record| record.inventory.contains_key(key));
    desired.is_temporary() && !is_recorded
        || jobs::state(situation, desired)
            == Some(jobs::JobState::Ended { outcome: RunOutcome::Complete, recorded: true })
}

/// A crash or a failed image pull counts as failed at once, because only a change helps. Everything else,
/// such as a probe that does not succeed yet, counts as failed only if it lasts longer than an ordinary
/// start.
fn state_with_cause(situation: &Situation<'_>, reason: &Reason, state: HealthState) -> HealthState {
    let lasts = situation
        .progress
        .readiness
        .unready_since
        .is_some_and(|since| due(since + ORDINARY_START, situation.now));
    if reason.needs_a_change() || lasts { HealthState::Failed } else { state }
}

/// Returns what the Pods show: a cause or nothing. `None`: not read since the stack became unready.
fn cause(situation: &Situation<'_>, key: &Key, seen: &SeenObject) -> Option<Option<(Reason, Message)>> {
    let readiness = &situation.progress.readiness;
    let (read, cause) = readiness.causes.get(key)?;
    readiness.unready_since.filter(|since| read >= since)?;
    let health = seen.health_at(situation.now);
    Some(cause.as_ref().map(|cause| {
        // A failed Job is not retried: that says more than how its last Pod ended.
        let is_over = key.kind == "Job" && health.state == HealthState::Failed;
        let reason = if is_over { &health.reason } else { &cause.reason };
        (reason.clone(), Message::new(format!("{} ({})", cause.message, health.message)))
    }))
}

/// Returns a workload that is ready, but not for long enough.
fn unstable(situation: &Situation<'_>, content: &Content) -> Option<Worst> {
    let workload = content.objects.values().find(|desired| desired.kind.keeps_pods_running())?;
    let outcome = situation.record.and_then(|record| record.outcome.as_ref());
    let is_known = outcome.is_some_and(|outcome| {
        outcome.transition == Transition::Healthy && outcome.sequence == content.sequence
    });
    if is_known || due(stable_at(situation), situation.now) {
        return None;
    }
    let seconds = u32::try_from(needed_stability(situation).as_secs()).unwrap_or(u32::MAX);
    let reason = Reason::Stabilizing { seconds };
    let message = reason.message();
    let (state, explanation) = (HealthState::Progressing, Explanation::StatusOnly);
    Some(Worst { key: workload.key.clone(), reason, message, state, explanation })
}

fn stable_at(situation: &Situation<'_>) -> Timestamp {
    situation.progress.readiness.ready_since.unwrap_or(situation.now) + needed_stability(situation)
}

fn needed_stability(situation: &Situation<'_>) -> SignedDuration {
    let crashed = situation.record.and_then(|record| record.crashed);
    let has_crashed = crashed == Some(situation.goal.target.sequence_id);
    if has_crashed && !situation.stable_after.is_zero() {
        situation.stable_after.max(STABLE_AFTER_CRASH)
    } else {
        situation.stable_after
    }
}

pub(super) struct HealthReport {
    /// The record to write, if there is something to report.
    pub step: Option<Record>,
    pub wake_at: Option<Timestamp>,
    pub unready: bool,
}

/// Reports the transitions of the steady state: healthy, degraded, repaired.
pub(super) fn report_health(situation: &Situation<'_>, content: &Content, record: &Record) -> HealthReport {
    let (ready, worst) = of(situation, content);
    let mut next = Record { ready, ..record.clone() };
    let graces =
        content.objects.keys().filter_map(|key| Some(situation.observed.seen(key)?.later.as_ref()?.0));
    let is_stabilizing =
        worst.as_ref().is_some_and(|worst| matches!(worst.reason, Reason::Stabilizing { .. }));
    let mut reported = HealthReport {
        step: None,
        wake_at: graces.filter(|at| !due(*at, situation.now)).min(),
        unready: worst.is_some() && !is_stabilizing,
    };
    let last = record.outcome.as_ref().map(|outcome| &outcome.transition);
    let mut changed = note_completed_jobs(situation, content, &mut next);
    if let Some(ended) = jobs::recorded(situation, content, &next) {
        next.jobs = ended.jobs;
        changed = true;
    }
    changed |= match worst {
        None if last != Some(&Transition::Healthy) => {
            if next.hops.healthy.is_none() {
                next.hops.healthy =
                    Some(next.hops.pruned.map_or(situation.now, |pruned| pruned.max(situation.now)));
            }
            next.crashed = None;
            report(situation, &mut next, Transition::Healthy, &Reason::None, &Message::default(), Vec::new());
            true
        }
        None => record.ready != ready,
        Some(worst) if is_stabilizing => {
            reported.wake_no_later_than(stable_at(situation));
            report_recovery(situation, record, &mut next, &worst, &mut reported) || record.ready != ready
        }
        Some(worst) => report_unready(situation, record, &mut next, &worst, &mut reported),
    };
    let of_drift = drift::report_changes(situation, record, &mut next);
    changed |= of_drift.is_news;
    if let Some(at) = of_drift.wake_at {
        reported.wake_no_later_than(at);
    }
    changed |= report_repairs(situation, record, &mut next, &mut reported.wake_at);
    reported.step = changed.then_some(next);
    reported
}

/// J4: reports that objects of the stack cannot be observed. Nothing is known about their health until they can.
pub(super) fn report_blindness(situation: &Situation<'_>, record: &Record, reason: &Reason) -> HealthReport {
    let mut reported = HealthReport { step: None, wake_at: None, unready: true };
    let is_known = record.outcome.as_ref().is_some_and(|last| {
        last.transition == Transition::Degraded && matches!(last.reason, Reason::CannotWatch { .. })
    });
    let since = situation.progress.readiness.unready_since.unwrap_or(situation.now);
    if is_known {
        return reported;
    }
    if !due(since + SLOW_AFTER, situation.now) {
        reported.wake_no_later_than(since + SLOW_AFTER);
        return reported;
    }
    let mut next = record.clone();
    report(situation, &mut next, Transition::Degraded, reason, &reason.message(), Vec::new());
    reported.step = Some(next);
    reported
}

impl HealthReport {
    fn wake_no_later_than(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |wake_at| wake_at.min(at)));
    }
}

/// Reports that a degraded stack is ready again, although it is not stable yet, so that it does not look broken.
fn report_recovery(
    situation: &Situation<'_>,
    record: &Record,
    next: &mut Record,
    worst: &Worst,
    reported: &mut HealthReport,
) -> bool {
    let is_degraded = record.outcome.as_ref().is_some_and(|last| last.transition == Transition::Degraded);
    if !is_degraded || is_known(record, &Transition::Degraded, worst) {
        return false;
    }
    let since = situation.progress.readiness.ready_since.unwrap_or(situation.now);
    let report_at = since + REASON_REPORTS;
    if !due(report_at, situation.now) {
        reported.wake_no_later_than(report_at);
        return false;
    }
    report_worst(situation, next, Transition::Degraded, worst);
    true
}

/// Records which Jobs are complete, because they may be deleted at any time. Returns whether there is a new one.
fn note_completed_jobs(situation: &Situation<'_>, content: &Content, next: &mut Record) -> bool {
    let is_new = |key: &&Key| {
        let Some(entry) = next.inventory.get(*key).filter(|entry| !entry.completed) else { return false };
        let seen = situation.observed.seen(key);
        let is_complete = seen.is_some_and(|seen| seen.completed && entry.uid.as_ref() == Some(&seen.uid));
        is_complete || situation.is_completed_and_gone(key)
    };
    let new: Vec<&Key> = content.objects.keys().filter(|key| is_job(key)).filter(is_new).collect();
    for key in &new {
        if let Some(entry) = next.inventory_mut().get_mut(*key) {
            entry.completed = true;
        }
    }
    !new.is_empty()
}

fn report_unready(
    situation: &Situation<'_>,
    record: &Record,
    next: &mut Record,
    worst: &Worst,
    reported: &mut HealthReport,
) -> bool {
    let last = record.outcome.as_ref();
    let since = situation.progress.readiness.unready_since.unwrap_or(situation.now);
    let just_applied = last.is_some_and(|last| last.transition == Transition::Applied);
    let is_rolling_out = just_applied && worst.state != HealthState::Failed;
    let (transition, patience) = if is_rolling_out {
        (Transition::Applied, SLOW_ROLLOUT)
    } else {
        (Transition::Degraded, DEGRADED_AFTER)
    };
    if is_known(record, &transition, worst) {
        return false;
    }
    let mut report_at = since + patience;
    if last.is_some_and(|last| last.transition == transition)
        && let Some(reported_at) = situation.progress.readiness.reported_at
    {
        report_at = report_at.max(reported_at + REASON_REPORTS);
    }
    if !due(report_at, situation.now) {
        // Not reported yet: a repair that is under way may be the cause.
        next.ready = record.ready;
        reported.wake_no_later_than(report_at);
        return false;
    }
    if worst.reason.is_crash() {
        next.crashed = Some(situation.goal.target.sequence_id);
    }
    report_worst(situation, next, transition, worst);
    true
}

fn report_worst(situation: &Situation<'_>, next: &mut Record, transition: Transition, worst: &Worst) {
    let (reason, message) = (worst.reason.clone(), worst.message.clone());
    let notes = vec![ObjectNote { object: object_ref(&worst.key), reason, message }];
    let message = summary(&notes);
    report(situation, next, transition, &worst.reason, &message, notes);
}

/// Returns whether the last report already says this.
fn is_known(record: &Record, transition: &Transition, worst: &Worst) -> bool {
    let Some(last) = record.outcome.as_ref().filter(|last| last.transition == *transition) else {
        return false;
    };
    // Until the Pods are read, the reported reason stays: the status alone is less specific.
    worst.explanation == Explanation::NotRead || last.reason.is_same_problem(&worst.reason)
}

/// Reports repairs together. A contest (another manager changes an object after every repair) is reported
/// when it begins and when it ends.
fn report_repairs(
    situation: &Situation<'_>,
    record: &Record,
    next: &mut Record,
    wake_at: &mut Option<Timestamp>,
) -> bool {
    let contests = contest::contests(situation);
    let was_contested = record.conditions.iter().any(|condition| {
        condition.kind == ConditionKind::Contested && condition.status == ConditionStatus::True
    });
    let (reason, message) = match contests.first() {
        None if was_contested => (Reason::ContestOver, Reason::ContestOver.message()),
        None if situation.progress.repairs.count == 0 => return false,
        None => {
            let reason = Reason::Drift { repairs: situation.progress.repairs.count };
            (reason.clone(), reason.message())
        }
        Some(first) => (first.reason(), first.message()),
    };
    let free_at = situation.progress.repairs.reported_at.map(|last| last + REPAIR_REPORTS);
    // A contest has begun or ended: reported without delay.
    let news = was_contested == contests.is_empty();
    if !news
        && (situation.progress.repairs.count == 0
            || free_at.is_some_and(|free_at| !due(free_at, situation.now)))
    {
        *wake_at = wake_at.or(free_at.filter(|_| situation.progress.repairs.count > 0));
        return false;
    }
    let keep = next.outcome.clone();
    report(situation, next, Transition::Repaired, &reason, &message, retry::overdue(situation));
    next.outcome = keep;
    true
}

#[cfg(test)]
mod tests;
