//! Decides when a failed request is retried, and when the failure is reported.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::reason::Message;
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;

use super::report;
use super::timing::{MISSING_PATIENCE, TRANSIENT_PATIENCE, due};
use crate::model::{
    DesiredObject, Failure, FailureClass, Plan, Prerequisite, RetryState, SeenObject, Situation, Stage, Step,
};
use crate::resource::{Kind, KindIn};

/// Returns the live object, if it exists: labelled objects are observed, others were read.
pub(super) fn existing<'a>(situation: &'a Situation<'_>, key: &Key) -> Option<&'a SeenObject> {
    situation
        .observed
        .seen(key)
        .or_else(|| situation.progress.lookups.objects.get(key).and_then(Option::as_ref))
}

/// Waits until all objects with our label are known, of the kinds and in the namespaces of these objects.
pub(super) fn sync<'a>(
    situation: &Situation<'_>,
    stage: Stage,
    objects: impl Iterator<Item = (&'a Key, &'a Kind)>,
) -> Option<Plan> {
    let missing: BTreeSet<KindIn> = objects
        .filter(|(key, _)| !situation.observed.synced(key))
        .map(|(key, kind)| KindIn::of(key, kind))
        .collect();
    (!missing.is_empty()).then(|| report::unwatched(situation, stage, missing))
}

/// Returns one request for each object, except where the last failure is too recent.
pub(super) fn requests<'a>(
    situation: &Situation<'_>,
    stage: Stage,
    objects: impl Iterator<Item = &'a Arc<DesiredObject>>,
    step: impl Fn(&Arc<DesiredObject>) -> Step,
) -> Option<Plan> {
    let mut plan = Plan::new(stage);
    for desired in objects {
        match situation.progress.failures.objects.get(&desired.key) {
            Some(retry) if !due(retry.retry_at, situation.now) => {
                plan = block_on_prerequisite(plan, &retry.failure).wake(Some(report_at(retry)));
                plan = plan.wake(Some(retry.retry_at));
                plan.waiting_for =
                    Some(Message::new(format!("{}: {}", desired.key.display_name(), retry.failure.message)));
            }
            _ => plan.steps.push(step(desired)),
        }
    }
    if plan.steps.is_empty() && plan.wake_at.is_some() {
        let lasting = overdue(situation);
        if let Some(reason) = lasting.first().map(|note| note.reason.clone()) {
            // Reported while it is still retried, so the stage does not change.
            let failed = report::failed(situation, &reason, lasting).wake(plan.wake_at);
            return Some(Plan { stage, blocked_on: plan.blocked_on, ..failed });
        }
    }
    (!plan.steps.is_empty() || plan.wake_at.is_some()).then_some(plan)
}

/// Returns the step that makes an object ours again after another client has raised its sequence id. Only a newer run of this agent could
/// have written a higher one; whether there is one is checked when the step is executed.
pub(super) fn reclaim(situation: &Situation<'_>, desired: &DesiredObject) -> Option<Step> {
    let (record, seen) = (situation.record?, situation.observed.seen(&desired.key)?);
    let is_raised = seen.sequence.is_some_and(|sequence| sequence > record.stamp);
    (is_raised && seen.belongs_to(situation.agent, record.stack, &desired.key)).then(|| Step::Reclaim {
        key: desired.key.clone(),
        kind: desired.kind.clone(),
        uid: seen.uid.clone(),
    })
}

/// Adds what the failure waits for: a missing prerequisite is resolved by an event, not by a later retry.
pub(super) fn block_on_prerequisite(mut plan: Plan, failure: &Failure) -> Plan {
    plan.blocked_on.extend(waits_for(failure));
    plan
}

/// Returns what has to appear before the request can succeed.
#[must_use]
pub fn waits_for(failure: &Failure) -> Option<Prerequisite> {
    let missing = failure.class == FailureClass::Missing;
    missing.then(|| failure.reason.waits_for().unwrap_or(Prerequisite::Definition))
}

pub(super) fn is_final(failure: &Failure) -> bool {
    matches!(failure.class, FailureClass::Permanent | FailureClass::Immutable)
}

/// Returns whether the request fails again until the manifest or the cluster changes.
pub(super) fn has_failed_for_good(situation: &Situation<'_>, key: &Key) -> bool {
    situation.progress.failures.objects.get(key).is_some_and(|retry| is_final(&retry.failure))
}

/// Returns the failures to report, although they are still retried: all of them, once one has lasted too
/// long. A missing prerequisite (such as a namespace that no stack contains) is reported sooner, because it
/// rarely resolves by itself.
#[must_use]
pub(super) fn overdue(situation: &Situation<'_>) -> Vec<ObjectNote> {
    if !situation.progress.failures.objects.values().any(|retry| due(report_at(retry), situation.now)) {
        return Vec::new();
    }
    // B2: all failures, not only the overdue one.
    situation
        .progress
        .failures
        .objects
        .iter()
        .map(|(key, retry)| report::failure_note(key, &retry.failure))
        .collect()
}

/// Reports failures that have lasted too long, if they are not reported yet.
pub(super) fn report_overdue(situation: &Situation<'_>, stage: Stage) -> Option<Plan> {
    let lasting = overdue(situation);
    let reason = lasting.first()?.reason.clone();
    let failed = report::failed(situation, &reason, lasting);
    (!failed.steps.is_empty()).then_some(Plan { stage, ..failed })
}

/// Returns whether the request has failed for so long that this is reported.
pub(super) fn is_overdue(situation: &Situation<'_>, key: &Key) -> bool {
    situation.progress.failures.objects.get(key).is_some_and(|retry| due(report_at(retry), situation.now))
}

fn report_at(retry: &RetryState) -> jiff::Timestamp {
    let patience = match retry.failure.class {
        FailureClass::Missing => MISSING_PATIENCE,
        _ => TRANSIENT_PATIENCE,
    };
    retry.since + patience
}

#[cfg(test)]
mod tests {
    use brokkr_health::HealthState;

    use super::*;
    use crate::plan::fixtures::{SEQUENCE, Stack, failed, second};

    /// Returns what is planned for the object of this stack.
    fn requested(stack: &Stack, now: i64) -> Option<Plan> {
        let content = stack.content();
        requests(&stack.situation(now, 10), Stage::Apply, content.objects.values(), |desired| {
            Step::ReadObject { key: desired.key.clone(), kind: desired.kind.clone() }
        })
    }

    #[test]
    fn d2_a_failed_request_is_made_again_when_its_time_has_come_and_reported_when_it_lasts() {
        let mut stack = Stack::deployment();
        assert_eq!(requested(&stack, 1).expect("a request").steps.len(), 1);
        let retry = failed(FailureClass::Transient, 0, 400);
        stack.progress.failures.objects.insert(stack.key.clone(), retry);
        let early = requested(&stack, 1).expect("a wait");
        assert_eq!((early.steps.len(), early.wake_at), (0, Some(second(300))), "until it is reported");
        assert!(early.waiting_for.is_some());
        assert!(overdue(&stack.situation(299, 10)).is_empty());
        assert!(!is_overdue(&stack.situation(299, 10), &stack.key));
        assert_eq!(overdue(&stack.situation(300, 10)).len(), 1);
        assert!(is_overdue(&stack.situation(300, 10), &stack.key));
        let late = requested(&stack, 300).expect("a report");
        assert!(matches!(late.steps.as_slice(), [Step::WriteRecord(_)]), "{late:?}");
        assert_eq!((late.stage, late.wake_at), (Stage::Apply, Some(second(300))), "it goes on");
        let due = requested(&stack, 400).expect("a request");
        assert!(matches!(due.steps.as_slice(), [Step::ReadObject { .. }]), "{due:?}");
    }

    #[test]
    fn an_object_is_reclaimed_only_if_its_sequence_id_is_higher_than_the_recorded_one() {
        let mut stack = Stack::deployment();
        stack.is(HealthState::Ready, 0);
        for (more, reclaims) in [(0, false), (1, true)] {
            let sequence = brokkr_api::SequenceId(SEQUENCE.0 + more);
            stack.objects.values_mut().for_each(|seen| seen.sequence = Some(sequence));
            let content = stack.content();
            let step = reclaim(&stack.situation(1, 10), &content.objects[&stack.key]);
            assert_eq!(step.is_some(), reclaims, "{sequence}");
        }
    }
}
