//! The steady state: nothing is asked of anybody. What others change is put back at once, and the
//! health of the whole is told when it changes.

use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::steps::{Plan, Stage, Step};
use super::types::{Content, Fight, Record, Seen, Situation};
use super::{dispose, due, outcome, prune};
use crate::marks::Stamp;

/// So many repairs of one object go through at once; after that they slow down.
const FREE_ROUNDS: u32 = 20;
/// A quiet time after which an object's fights are forgotten.
const TRUCE: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn plan(s: &Situation<'_>, content: &Content, record: &Record) -> Plan {
    if prune::lingers(record, content) {
        // Handed over by now, or wanted by nobody any more.
        if let Some(plan) = prune::plan(s, content) {
            return plan;
        }
        if record.inventory.keys().any(|key| !content.objects.contains_key(key) && !dispose::lingers(s, key))
        {
            let record = outcome::handed_over(s, content, record);
            return Plan::with(Stage::Steady, vec![Step::WriteRecord(Box::new(record))]);
        }
    }
    let mut plan = Plan { minds_others: prune::lingers(record, content), ..Plan::new(Stage::Steady) };
    for wanted in content.objects.values() {
        if !s.observed.synced(&wanted.kind.name()) {
            plan.watch.insert(wanted.kind.clone());
        }
    }
    for key in content.objects.keys() {
        let (step, wake) = repair(s, key);
        plan.steps.extend(step);
        plan = plan.wake(wake);
    }
    // Health is told of the whole: not before the whole is seen.
    if let Some(kind) = plan.watch.first() {
        plan.waiting_for = Some(format!("the watch on {kind}"));
    } else if plan.steps.is_empty() && s.busy.is_empty() {
        let told = outcome::health(s, content, record);
        plan.steps.extend(told.step.map(|record| Step::WriteRecord(Box::new(record))));
        plan.unready = told.unready;
        plan = plan.wake(told.wake_at);
    }
    plan
}

/// Puts back what was applied, while the newer content cannot be had, is refused, or waits for something.
pub(super) fn keep_up(s: &Situation<'_>, mut plan: Plan) -> Plan {
    let taken_back = |key: &Key| {
        plan.stage == Stage::Stopped
            && s.record
                .is_some_and(|record| record.made.ground.contains(key) && s.progress.deleted.contains(key))
    };
    let going = |key: &Key| {
        taken_back(key)
            || plan.stage == Stage::Prune
                && s.goal.content.as_ref().is_none_or(|content| !content.objects.contains_key(key))
    };
    let keys: Vec<&Key> =
        s.record.into_iter().flat_map(|record| record.inventory.keys()).filter(|key| !going(key)).collect();
    for key in keys {
        let (step, wake) = repair(s, key);
        plan.steps.extend(step);
        plan = plan.wake(wake);
    }
    plan
}

/// Puts one resource back if it is not as it was applied; or tells when to look again.
#[must_use]
pub fn repair(s: &Situation<'_>, key: &Key) -> (Option<Step>, Option<Timestamp>) {
    let Some(record) = s.record.filter(|record| record.removal.is_none()) else { return (None, None) };
    let Some(entry) = record.inventory.get(key) else { return (None, None) };
    let Some((content, wanted)) = s.goal.as_applied(key, entry.digest) else { return (None, None) };
    if s.busy.contains(key) || !s.observed.synced(&entry.kind.name()) {
        return (None, None);
    }
    if let Some(standing) = s.progress.failures.get(key)
        && !due(standing.retry_at, s.now)
    {
        return (None, Some(standing.retry_at));
    }
    let apply = |seen: Option<&Seen>| {
        if let Some(until) = slowed(s.progress.fights.get(key), s.now) {
            return (None, Some(until));
        }
        let stamp =
            Stamp { agent: s.agent, stack: record.stack, checksum: content.checksum, sequence: record.stamp };
        let uid = seen.map(|seen| seen.uid.clone());
        let ours = seen.is_some_and(|seen| seen.belongs_to(s.agent, record.stack, key));
        (Some(Step::Apply { wanted: wanted.clone(), uid, stamp, repair: true, ours }), None)
    };
    match (s.observed.seen(key), s.progress.looked.get(key)) {
        // On its way out: made again once it is gone.
        (Some(seen), _) if seen.deleting => (None, None),
        (Some(seen), _) if seen.other_owner(s.agent, record.stack, key).is_some() => (None, None),
        (Some(seen), _) if entry.uid.as_deref() == Some(&seen.uid) && entry.fields == seen.fields => {
            (None, None)
        }
        (Some(seen), _) => apply(Some(seen)),
        // Losing the label looks like a deletion: ask.
        (None, None) => (Some(Step::Look { key: key.clone(), kind: wanted.kind.clone() }), None),
        (None, Some(None)) => apply(None),
        (None, Some(Some(seen))) if seen.deleting => (None, Some(s.now + SignedDuration::from_secs(1))),
        (None, Some(Some(seen))) if seen.other_owner(s.agent, record.stack, key).is_some() => (None, None),
        (None, Some(Some(seen))) => apply(Some(seen)),
    }
}

/// Until when an object that is fought over has to wait.
fn slowed(fight: Option<&Fight>, now: Timestamp) -> Option<Timestamp> {
    let fight = fight.filter(|fight| fight.rounds >= FREE_ROUNDS)?;
    let exponent = (fight.rounds - FREE_ROUNDS).min(8);
    let until = fight.last + SignedDuration::from_secs(1 << exponent);
    (!due(until, now)).then_some(until)
}

/// Counts one more repair of an object.
#[must_use]
pub fn fought(fight: Option<Fight>, now: Timestamp) -> Fight {
    match fight {
        Some(fight) if !due(fight.last + TRUCE, now) => Fight { rounds: fight.rounds + 1, last: now },
        _ => Fight { rounds: 1, last: now },
    }
}
