//! The steady state: without changes, no requests are made. Changes by others are reverted at once, and the
//! health of the stack is reported when it changes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::contest::{CONTESTED_AFTER, TRUCE, is_contested, slowed};
use super::retry::reclaim;
use super::timing::due;
use super::{dispose, drift, jobs, prune, readiness, record};
use crate::model::{ApplyReason, Content, DesiredObject, Plan, Record, SeenObject, Situation, Stage, Step};
use crate::ownership::Stamp;
use crate::resource::KindIn;

/// How long a workload may be unready before its Pods are read.
const DIAGNOSED_AFTER: SignedDuration = SignedDuration::from_secs(5);
/// The maximum number of workloads of a stack whose Pods are read within one interval (`diagnosed_again`).
const DIAGNOSED: usize = 3;
/// How often the Pods of an unready workload are read again: soon at first, because the cause may change, then more and more
/// rarely.
const DIAGNOSED_AGAIN: RangeInclusive<SignedDuration> =
    SignedDuration::from_secs(10)..=SignedDuration::from_secs(60);
/// The number of objects that a sweep checks at the same time; low, so that it does not slow down other
/// requests.
const SWEPT_AT_ONCE: usize = 8;

/// Returns the record, if the content is applied completely.
pub(super) fn applied<'a>(situation: &Situation<'a>, content: &Content) -> Option<&'a Record> {
    situation.record.filter(|record| {
        record.applied == Some(content.sequence)
            && record.sequence == content.sequence
            && record.removal.is_none()
    })
}

pub(super) fn plan(situation: &Situation<'_>, content: &Content, record: &Record) -> Plan {
    if prune::lingers(record, content) && !situation.suspensions.cover_stack() {
        // The record still has objects that the content no longer contains, because another stack wants them.
        // By now that stack may have taken them over, or may no longer want them.
        if let Some(plan) = prune::plan(situation, content) {
            return plan;
        }
        if record.inventory.keys().any(|key| !content.keeps(key) && !dispose::lingers(situation, key)) {
            let record = record::handed_over(situation, content, record);
            return Plan::with(Stage::Steady, vec![Step::WriteRecord(Box::new(record))]);
        }
    }
    let mut plan = Plan { depends_on_others: prune::lingers(record, content), ..Plan::new(Stage::Steady) };
    for desired in content.objects.values() {
        if !situation.observed.synced(&desired.key) {
            plan.watch.insert(KindIn::of(&desired.key, &desired.kind));
        }
    }
    plan = repair_each(situation, plan, content.objects.keys());
    if drift::is_reported(situation) && plan.watch.is_empty() {
        plan = drift::look(situation, content, plan);
    }
    if plan.steps.is_empty() && situation.busy.is_empty() {
        // Objects that need no check, such as those of another owner, must not keep the others from theirs.
        let unswept = situation.progress.repairs.unswept.iter();
        let next = unswept.filter_map(|key| repair_or_sweep(situation, key, true).0);
        plan.steps.extend(next.take(SWEPT_AT_ONCE));
    }
    if situation.goal.fallback.is_some() {
        plan.steps.push(Step::ForgetContents { keep: content.sequence });
    }
    // Health is reported for the whole stack, so all objects must be observed first.
    if let Some(first) = plan.watch.first() {
        let reason = Reason::CannotWatch { kind: first.kind.to_string() };
        plan.waiting_for = Some(reason.message());
        plan.unready = true;
        if plan.steps.is_empty() && situation.busy.is_empty() {
            let health = readiness::report_blindness(situation, record, &reason);
            plan.steps.extend(health.step.map(|record| Step::WriteRecord(Box::new(record))));
            plan = plan.wake(health.wake_at);
        }
    } else if plan.steps.is_empty() && situation.busy.is_empty() {
        let health = readiness::report_health(situation, content, record);
        plan.steps.extend(health.step.map(|record| Step::WriteRecord(Box::new(record))));
        plan.unready = health.unready;
        plan = plan.wake(health.wake_at);
        if health.unready && plan.steps.is_empty() {
            plan.steps.extend(unexplained(situation, content));
            let since = situation.progress.readiness.unready_since.unwrap_or(situation.now);
            let next = [since + DIAGNOSED_AFTER, situation.now + diagnosed_again(since, situation.now)]
                .into_iter()
                .find(|at| !due(*at, situation.now));
            plan = plan.wake(next);
        }
        let truces =
            situation.progress.repairs.fights.values().filter(|fight| is_contested(fight, situation.now));
        plan = plan.wake(truces.map(|fight| fight.last + TRUCE).min());
    }
    plan
}

/// Repairs the previously applied objects while the newer content is unavailable, refused or waiting.
pub(super) fn keep_up(situation: &Situation<'_>, mut plan: Plan) -> Plan {
    // After a restart, the previous content is only in the cache in the cluster.
    if let Some(record) = situation.record.filter(|record| record.removal.is_none())
        && let Some(sequence) = record.applied.filter(|applied| *applied != situation.goal.target.sequence_id)
        && situation.goal.fallback.is_none()
        && !situation.progress.delivery.earlier_requested
    {
        plan.steps.push(Step::FetchEarlier { sequence });
        return plan;
    }
    let keys = situation.record.into_iter().flat_map(|record| record.inventory.keys());
    repair_all(situation, plan, keys)
}

/// Adds repairs of these objects to a plan, except of those that its stage disposes of.
#[must_use]
pub fn repair_all<'a>(situation: &Situation<'_>, plan: Plan, keys: impl Iterator<Item = &'a Key>) -> Plan {
    let stage = plan.stage;
    repair_each(situation, plan, keys.filter(|key| !is_going(situation, stage, key)))
}

fn repair_each<'a>(situation: &Situation<'_>, mut plan: Plan, keys: impl Iterator<Item = &'a Key>) -> Plan {
    for key in keys {
        let (step, wake) = repair(situation, key);
        plan.steps.extend(step);
        plan = plan.wake(wake);
    }
    plan
}

/// Returns whether this stage disposes of the object: its delivery is taken back, or the content no longer contains it.
fn is_going(situation: &Situation<'_>, stage: Stage, key: &Key) -> bool {
    let is_made = situation.record.is_some_and(|record| record.made.prerequisites.contains(key));
    let is_deleted = situation.progress.cleanup.deleted.contains_key(key);
    match stage {
        Stage::Stopped => is_made && is_deleted,
        // It may be replaced.
        Stage::Prerequisites | Stage::Validate | Stage::Apply => is_deleted,
        Stage::Prune | Stage::Finish | Stage::Steady => {
            situation.goal.content.as_ref().is_none_or(|content| !content.keeps(key))
        }
        _ => false,
    }
}

/// Returns the step that reverts a change by others, or the time to check again.
fn repair(situation: &Situation<'_>, key: &Key) -> (Option<Step>, Option<Timestamp>) {
    repair_or_sweep(situation, key, false)
}

fn repair_or_sweep(situation: &Situation<'_>, key: &Key, sweep: bool) -> (Option<Step>, Option<Timestamp>) {
    let Some(record) = situation.record.filter(|record| record.removal.is_none()) else {
        return (None, None);
    };
    let Some(entry) = record.inventory.get(key) else { return (None, None) };
    let Some((content, desired)) = situation.goal.as_applied(key, entry.digest) else { return (None, None) };
    if situation.suspensions.cover(key) || drift::is_reported(situation) {
        return (None, None);
    }
    if situation.busy.contains(key) || !situation.observed.synced(key) {
        return (None, None);
    }
    // B8: a completed Job that is gone is not missing. One that is replaced, or has run, need not come back.
    if jobs::is_outdated(situation, record, key, entry.digest) {
        return (None, None);
    }
    if situation.is_completed_and_gone(key) || situation.was_completed_before_it_was_gone(key) {
        return (None, None);
    }
    let newest = content.sequence == situation.goal.target.sequence_id;
    let failures =
        if newest { &situation.progress.failures.objects } else { &situation.progress.failures.put_back };
    let repair = if newest { ApplyReason::Repair } else { ApplyReason::PutBack };
    if let Some(retry) = failures.get(key).filter(|retry| retry.is_of_apply())
        && !due(retry.retry_at, situation.now)
    {
        return (None, Some(retry.retry_at));
    }
    let apply = |seen: Option<&SeenObject>, why: ApplyReason| {
        if let Some(until) = slowed(situation.progress.repairs.fights.get(key), situation.now) {
            return (None, Some(until));
        }
        let stamp = Stamp {
            agent: situation.agent,
            stack: record.stack,
            checksum: content.checksum,
            sequence: record.stamp,
        };
        // The rivals are looked up before the repair that makes the object contested, because after a repair
        // the fields are ours again, and the API server no longer names the rival.
        let contested = situation.progress.repairs.fights.get(key).is_some_and(|fight| {
            fight.rounds + 1 >= CONTESTED_AFTER && !due(fight.last + TRUCE, situation.now)
        });
        if contested && seen.is_some() && !situation.progress.repairs.rivals.contains_key(key) {
            return (Some(Step::FindRivals { desired: desired.clone(), stamp }), None);
        }
        if let Some(step) = reclaim(situation, desired) {
            // Its failures are not those of a put back.
            let retry = situation.progress.failures.objects.get(key).map(|retry| retry.retry_at);
            let retry = retry.filter(|at| !due(*at, situation.now));
            return (Some(step).filter(|_| retry.is_none()), retry);
        }
        let uid = seen.map(|seen| seen.uid.clone());
        (Some(Step::Apply { desired: desired.clone(), uid, stamp, why }), None)
    };
    match (situation.observed.seen(key), situation.progress.lookups.objects.get(key)) {
        // It is being deleted, and is created again once it is gone.
        (Some(seen), _) if seen.deleting => (None, None),
        (Some(seen), _) if seen.other_owner(situation.agent, record.stack, key).is_some() => (None, None),
        (Some(seen), _) if entry.uid.as_ref() == Some(&seen.uid) && entry.fields == seen.fields => {
            // Another client may have changed it in a way that managedFields do not show.
            if sweep { apply(Some(seen), ApplyReason::Sweep { version: seen.version }) } else { (None, None) }
        }
        (Some(seen), _) => apply(Some(seen), repair),
        // An object that lost its label looks deleted to the watch: read it, unless the last read has just failed.
        (None, None) => {
            let read = situation.progress.failures.objects.get(key).filter(|retry| !retry.is_of_apply());
            match read.filter(|retry| !due(retry.retry_at, situation.now)) {
                Some(retry) => (None, Some(retry.retry_at)),
                None => (Some(Step::ReadObject { key: key.clone(), kind: desired.kind.clone() }), None),
            }
        }
        (None, Some(None)) => apply(None, repair),
        (None, Some(Some(seen))) if seen.deleting => {
            (None, Some(situation.now + SignedDuration::from_secs(1)))
        }
        (None, Some(Some(seen))) if seen.other_owner(situation.agent, record.stack, key).is_some() => {
            (None, None)
        }
        // C5: another client's object, with the name of one in the earlier content. Writing to it would make
        // it ours, and a pending prune could delete it.
        (None, Some(Some(seen))) if !newest && entry.uid.as_ref() != Some(&seen.uid) => (None, None),
        (None, Some(Some(seen))) => apply(Some(seen), repair),
    }
}

/// Returns the interval at which Pods are read again, for a stack that has been unready since `since`.
fn diagnosed_again(since: Timestamp, now: Timestamp) -> SignedDuration {
    (now.duration_since(since) / 10).clamp(*DIAGNOSED_AGAIN.start(), *DIAGNOSED_AGAIN.end())
}

/// Returns a step that diagnoses the first workload that has been unready for too long.
fn unexplained(situation: &Situation<'_>, content: &Content) -> Option<Step> {
    let since = situation
        .progress
        .readiness
        .unready_since
        .filter(|since| due(*since + DIAGNOSED_AFTER, situation.now))?;
    let again = diagnosed_again(since, situation.now);
    // The cause is usually the same for all workloads, so not every workload of a large stack is diagnosed.
    let asked = situation
        .progress
        .readiness
        .causes
        .values()
        .filter(|(at, _)| *at >= since && !due(*at + again, situation.now));
    if asked.count() >= DIAGNOSED {
        return None;
    }
    let unready = |desired: &&Arc<DesiredObject>| {
        desired.kind.has_pods()
            && situation
                .observed
                .seen(&desired.key)
                .is_some_and(|seen| !seen.deleting && !seen.is_ready(situation.now))
            && situation
                .progress
                .readiness
                .causes
                .get(&desired.key)
                .is_none_or(|(asked, _)| *asked < since || due(*asked + again, situation.now))
    };
    let desired = content.objects.values().find(unready)?;
    Some(Step::Diagnose { desired: desired.clone() })
}

#[cfg(test)]
mod tests;
