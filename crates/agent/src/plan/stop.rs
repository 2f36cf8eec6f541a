//! Stops a delivery that cannot continue: reports it once, deletes its new Namespaces (D1), and retries in
//! the next cycle.

use std::sync::Arc;

use brokkr_api::reason::Reason;
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::retry::has_failed_for_good;
use super::timing::{NEXT_CYCLE, RELEASE_CHECKS, RIGHTS_CYCLE, due};
use super::{record, report};
use crate::model::{Content, DesiredObject, Origin, Plan, Record, Situation, Stage, Step};
use crate::resource::KindName;

/// Stops if one of these objects has failed permanently, and reports all that failed.
pub(super) fn stop_on_failures<'a>(
    situation: &Situation<'_>,
    objects: impl Iterator<Item = &'a Arc<DesiredObject>> + Clone,
) -> Option<Plan> {
    if !objects.clone().any(|desired| has_failed_for_good(situation, &desired.key)) {
        return None;
    }
    let notes: Vec<ObjectNote> = objects
        .filter_map(|desired| {
            let retry = situation.progress.failures.objects.get(&desired.key)?;
            Some(report::failure_note(&desired.key, &retry.failure))
        })
        .collect();
    let reason = notes.first()?.reason.clone();
    Some(stop(situation, &reason, notes))
}

/// Reports the failure once, deletes new namespaces, and tries again in the next cycle.
pub(super) fn stop(situation: &Situation<'_>, reason: &Reason, notes: Vec<ObjectNote>) -> Plan {
    let failed = report::failed(situation, reason, notes);
    if failed.steps.is_empty()
        && let Some(undoing) = undo(situation)
    {
        return undoing;
    }
    failed.wake(Some(next_cycle(situation)))
}

/// Waits for the next cycle; the failure is already reported.
pub(super) fn wait_for_next_cycle(situation: &Situation<'_>) -> Plan {
    let reported =
        situation.record.and_then(|record| record.outcome.as_ref()).map(|outcome| outcome.message.clone());
    Plan::waiting(Stage::Stopped, reported.unwrap_or_default()).wake(Some(next_cycle(situation)))
}

/// Returns when to start over: sooner if rights are missing, but not before every failed request may be made again. Counted
/// from the stop, so that frequent changes do not put it off.
fn next_cycle(situation: &Situation<'_>) -> jiff::Timestamp {
    let since = situation.progress.stopped_since.unwrap_or(situation.now);
    let failures = situation.progress.failures.objects.values();
    let lacks_rights =
        situation.progress.lookups.missing_rights.as_ref().is_some_and(|lacking| !lacking.is_empty())
            || failures.clone().any(|retry| retry.failure.reason.is_refused_permission());
    let pause = if lacks_rights { RIGHTS_CYCLE } else { NEXT_CYCLE };
    failures.map(|retry| retry.retry_at).fold(since + pause, Ord::max)
}

/// Returns whether namespaces of this delivery are being deleted. Then nothing is written before the next
/// cycle.
pub(super) fn is_taken_back(situation: &Situation<'_>, content: &Content) -> bool {
    situation
        .progress
        .cleanup
        .deleted
        .keys()
        .any(|key| KindName::of(key).is_namespace() && content.objects.contains_key(key))
}

/// D1: deletes the namespaces that this delivery created, once per deployment object, if they are unchanged and empty.
pub(super) fn undo(situation: &Situation<'_>) -> Option<Plan> {
    let record =
        situation.record.filter(|record| record.made.sequence == situation.goal.target.sequence_id)?;
    if record.made.prerequisites.is_empty() {
        return None;
    }
    let mut plan = Plan::new(Stage::Stopped);
    for key in record.made.prerequisites.iter().filter(|key| KindName::of(key).is_namespace()) {
        match fate(situation, record, key) {
            Fate::Settled => {}
            Fate::Leaving => plan = plan.wake(Some(situation.now + RELEASE_CHECKS)),
            Fate::Act(step) => plan.steps.push(step),
        }
    }
    if plan.steps.is_empty() && plan.wake_at.is_none() {
        plan.steps.push(Step::WriteRecord(Box::new(record::undone(situation, record))));
    } else if plan.steps.is_empty() {
        plan.waiting_for = Some("waiting for the namespaces of this delivery to be deleted".into());
    }
    Some(plan)
}

enum Fate {
    /// Deleted, or left on purpose.
    Settled,
    /// Being deleted, or a request for it has just failed: check again soon.
    Leaving,
    Act(Step),
}

fn fate(situation: &Situation<'_>, record: &Record, key: &Key) -> Fate {
    let (Some(entry), Some(seen)) = (record.inventory.get(key), situation.observed.seen(key)) else {
        return Fate::Settled;
    };
    let ours = entry.origin == Origin::Created
        && entry.uid.as_ref() == Some(&seen.uid)
        && seen.belongs_to(situation.agent, record.stack, key);
    if !ours
        || situation.other_stacks.successor(key).is_some()
        || situation.other_stacks.is_prerequisite_of_another_stack(key)
    {
        return Fate::Settled;
    }
    if let Some(retry) = situation.progress.failures.objects.get(key) {
        return if due(retry.retry_at, situation.now) { Fate::Settled } else { Fate::Leaving };
    }
    if seen.deleting || situation.progress.cleanup.deleted.get(key) == Some(&seen.uid) {
        return Fate::Leaving;
    }
    let (key, kind) = (key.clone(), entry.kind.clone());
    match situation.progress.lookups.contained.get(&key) {
        None => Fate::Act(Step::ListContained { key, kind }),
        Some(inside) if inside.is_empty() => Fate::Act(Step::Delete { key, kind, uid: seen.uid.clone() }),
        Some(_) => Fate::Settled,
    }
}

#[cfg(test)]
mod tests {
    use brokkr_health::HealthState;

    use super::*;
    use crate::plan::fixtures::{SEQUENCE, Stack, namespace, second};

    /// Returns a stopped delivery that has created its Namespace.
    fn stopped() -> (Stack, Key) {
        let mut stack = Stack::deployment();
        let shop = namespace("shop");
        stack.add(&shop);
        stack.record.made.sequence = SEQUENCE;
        stack.record.made.prerequisites.insert(shop.clone());
        stack.objects.insert(shop.clone(), Stack::seen_as(HealthState::Ready));
        (stack, shop)
    }

    #[test]
    fn d1_an_empty_namespace_of_a_stopped_delivery_is_deleted_and_waited_for() {
        let (mut stack, shop) = stopped();
        let undone = |stack: &Stack| undo(&stack.situation(1, 10)).expect("a plan");
        assert!(matches!(undone(&stack).steps.as_slice(), [Step::ListContained { .. }]));
        stack.progress.lookups.contained.insert(shop.clone(), Vec::new());
        assert!(matches!(undone(&stack).steps.as_slice(), [Step::Delete { .. }]));
        stack.progress.cleanup.deleted.insert(shop, "uid".into());
        let leaving = undone(&stack);
        assert_eq!((leaving.steps.len(), leaving.wake_at), (0, Some(second(1) + RELEASE_CHECKS)));
    }

    #[test]
    fn d1_a_namespace_is_left_if_it_is_used_not_ours_or_needed_elsewhere() {
        let is_left = |change: fn(&mut Stack, &Key)| {
            let (mut stack, shop) = stopped();
            stack.progress.lookups.contained.insert(shop.clone(), Vec::new());
            change(&mut stack, &shop);
            matches!(fate(&stack.situation(1, 10), &stack.record, &shop), Fate::Settled)
        };
        assert!(!is_left(|_, _| {}));
        assert!(is_left(|stack, shop| {
            stack.progress.lookups.contained.insert(shop.clone(), vec!["Pod shop/other".into()]);
        }));
        assert!(is_left(|stack, shop| {
            stack.record.inventory_mut().get_mut(shop).unwrap().origin = Origin::Adopted;
        }));
        assert!(is_left(|stack, shop| stack.objects.get_mut(shop).unwrap().uid = "other".into()));
        assert!(is_left(|stack, shop| {
            stack.needed_elsewhere.insert(shop.clone());
        }));
    }
}
