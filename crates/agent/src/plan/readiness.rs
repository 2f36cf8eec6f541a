//! F6: readiness is observed, not assumed. It is reported when it changes, with the nearest cause.

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{ConditionKind, ConditionStatus, ObjectNote, Transition};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::report::{report, summary};
use super::timing::{DEGRADED_AFTER, REPAIR_REPORTS, due};
use super::{contest, retry};
use crate::health::HealthState;
use crate::model::{Content, Record, SeenObject, Situation};
use crate::resource::object_ref;

/// The unready object to name in a report.
pub(super) struct Worst {
    pub key: Key,
    pub reason: Reason,
    pub message: Message,
    state: HealthState,
    /// Its cause was looked up.
    explained: bool,
}

/// Returns how many objects are ready, and the worst of the others.
pub(super) fn of(situation: &Situation<'_>, content: &Content) -> (u32, Option<Worst>) {
    let (mut ready, mut worst): (u32, Option<Worst>) = (0, None);
    for key in content.objects.keys() {
        match unready(situation, key) {
            None => ready += 1,
            Some(found) => {
                let rank = |worst: &Worst| (worst.explained, worst.state == HealthState::Failed);
                if worst.as_ref().is_none_or(|worst| rank(worst) < rank(&found)) {
                    worst = Some(found);
                }
            }
        }
    }
    (ready, worst)
}

fn unready(situation: &Situation<'_>, key: &Key) -> Option<Worst> {
    let worst = |reason: Reason, message: Message, state| Worst {
        key: key.clone(),
        reason,
        message,
        state,
        explained: false,
    };
    let refused =
        situation.progress.failures.objects.get(key).filter(|retry| retry::is_final(&retry.failure));
    if let Some(retry) = refused {
        let message = Reason::RepairFailed.message_with(&retry.failure.message);
        return Some(worst(retry.failure.reason.clone(), message, HealthState::Failed));
    }
    match situation.observed.seen(key) {
        Some(seen) if seen.other_owner(situation.agent, situation.goal.target.stack_id, key).is_some() => {
            let reason = Reason::OwnedByOther { owner: None };
            Some(worst(reason.clone(), reason.message(), HealthState::Failed))
        }
        Some(seen) if seen.is_ready(situation.now) => None,
        Some(seen) => Some(explained(situation, key, seen).unwrap_or_else(|| {
            let health = seen.health_at(situation.now);
            worst(health.reason.clone(), health.message.clone(), health.state)
        })),
        None => Some(worst(Reason::Missing, Reason::Missing.message(), HealthState::Unknown)),
    }
}

/// Returns the cause, if it was found since the object became unready.
fn explained(situation: &Situation<'_>, key: &Key, seen: &SeenObject) -> Option<Worst> {
    let (asked, cause) = situation.progress.readiness.causes.get(key)?;
    let cause = cause
        .as_ref()
        .filter(|_| situation.progress.readiness.unready_since.is_some_and(|since| *asked >= since))?;
    Some(Worst {
        key: key.clone(),
        reason: cause.reason.clone(),
        message: Message::new(format!("{} ({})", cause.message, seen.health_at(situation.now).message)),
        state: HealthState::Failed,
        explained: true,
    })
}

pub(super) struct HealthReport {
    pub step: Option<Record>,
    pub wake_at: Option<Timestamp>,
    pub unready: bool,
}

/// Reports the transitions of the steady state: healthy, degraded, repaired.
pub(super) fn report_health(situation: &Situation<'_>, content: &Content, record: &Record) -> HealthReport {
    let (ready, worst) = of(situation, content);
    let mut next = Record { session: situation.session, ready, ..record.clone() };
    let graces =
        content.objects.keys().filter_map(|key| Some(situation.observed.seen(key)?.later.as_ref()?.0));
    let mut reported = HealthReport {
        step: None,
        wake_at: graces.filter(|at| !due(*at, situation.now)).min(),
        unready: worst.is_some(),
    };
    let last = record.outcome.as_ref().map(|outcome| &outcome.transition);
    let mut changed = match worst {
        None if last != Some(&Transition::Healthy) => {
            if next.hops.healthy.is_none() {
                next.hops.healthy =
                    Some(next.hops.pruned.map_or(situation.now, |pruned| pruned.max(situation.now)));
            }
            report(situation, &mut next, Transition::Healthy, &Reason::None, &Message::default(), Vec::new());
            true
        }
        None => record.ready != ready,
        Some(worst) => report_unready(situation, record, &mut next, &worst, &mut reported.wake_at),
    };
    changed |= report_repairs(situation, record, &mut next, &mut reported.wake_at);
    reported.step = changed.then_some(next);
    reported
}

fn report_unready(
    situation: &Situation<'_>,
    record: &Record,
    next: &mut Record,
    worst: &Worst,
    wake_at: &mut Option<Timestamp>,
) -> bool {
    let last = record.outcome.as_ref();
    let since = situation.progress.readiness.unready_since.unwrap_or(situation.now);
    let just_applied = last.is_some_and(|last| last.transition == Transition::Applied);
    if just_applied && worst.state != HealthState::Failed {
        return false;
    }
    if !due(since + DEGRADED_AFTER, situation.now) {
        // Not reported yet: it may be a repair that is under way.
        next.ready = record.ready;
        *wake_at = Some(wake_at.map_or(since + DEGRADED_AFTER, |at| at.min(since + DEGRADED_AFTER)));
        return false;
    }
    let known = last.is_some_and(|last| {
        last.transition == Transition::Degraded && (!worst.explained || last.reason == worst.reason)
    });
    if known {
        return false;
    }
    let (reason, message) = (worst.reason.clone(), worst.message.clone());
    let notes = vec![ObjectNote { object: object_ref(&worst.key), reason, message }];
    let message = summary(&notes);
    report(situation, next, Transition::Degraded, &worst.reason, &message, notes);
    true
}

/// Repairs are reported together; a contest is reported when it begins and when it ends.
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
