//! B2 and B3: dry runs of changed objects, then server-side apply of all objects in order.

use std::sync::Arc;

use brokkr_api::reason::Reason;

use super::open::{is_changed, is_done, is_open};
use super::retry::{existing, has_failed_for_good, is_overdue, reclaim, report_overdue, requests, sync};
use super::stop::stop_on_failures;
use super::timing::{RELEASE_CHECKS, SLOW_AFTER};
use super::{jobs, record, report, waves};
use crate::model::{ApplyReason, Content, DesiredObject, Plan, Situation, Stage, Step};
use crate::ownership::Stamp;
use crate::resource::is_prerequisite;

/// Validates changed objects with a dry run; all errors are collected.
pub(super) fn validate(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    if let Some(plan) =
        sync(situation, Stage::Validate, rest(content).map(|desired| (&desired.key, &desired.kind)))
    {
        return Some(plan);
    }
    let unchecked = rest(content).filter(|desired| {
        !situation.progress.delivery.validated.contains(&desired.key)
            && is_changed(situation, desired)
            && !is_done(situation, content, desired)
            && !situation.suspensions.cover(&desired.key)
            && !has_failed_for_good(situation, &desired.key)
            && existing(situation, &desired.key).is_none_or(|seen| !seen.deleting)
    });
    requests(situation, Stage::Validate, unchecked, |desired| {
        reclaim(situation, desired).unwrap_or_else(|| Step::DryRun {
            desired: desired.clone(),
            uid: existing(situation, &desired.key).map(|seen| seen.uid.clone()),
            stamp: stamp(situation, content),
        })
    })
}

/// Stops the delivery on a permanent error, if nothing but prerequisites has been written so far.
pub(super) fn stop_if_invalid(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let unapplied = rest(content).all(|desired| !situation.progress.delivery.written.contains(&desired.key));
    if unapplied { stop_on_failures(situation, rest(content)) } else { None }
}

fn rest(content: &Content) -> impl Iterator<Item = &Arc<DesiredObject>> + Clone {
    content.objects.values().filter(|desired| !is_prerequisite(&desired.key))
}

/// Applies all objects: first the changed ones, in order, then the others, to which only the new
/// stamp (the ownership metadata) is written.
pub(super) fn apply(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let unready = waves::first_unready(situation, content);
    let open: Vec<_> = content
        .objects
        .values()
        .filter(|desired| is_open(situation, content, desired))
        .filter(|desired| unready.is_none_or(|unready| waves::group(situation, desired) <= unready))
        .collect();
    let order = |desired: &DesiredObject| {
        let group = waves::group(situation, desired);
        (group, !is_changed(situation, desired), desired.wave, desired.rank)
    };
    // J5: an object delays those after it until it is written, has failed for good, or has failed for so long that this is
    // reported.
    let delaying = open.iter().filter(|desired| !is_overdue(situation, &desired.key));
    let next = delaying.map(|desired| order(desired)).min();
    if open.iter().any(|desired| is_overdue(situation, &desired.key))
        && let Some(plan) = report_overdue(situation, Stage::Apply)
    {
        return Some(plan);
    }
    let now = open.into_iter().filter(|desired| next.is_none_or(|next| order(desired) <= next));
    objects(situation, Stage::Apply, content, now)
        .or_else(|| stop_on_failures(situation, content.objects.values()))
        .or_else(|| waves::wait(situation, content, unready?))
}

/// Applies objects that are not written yet. Objects that are being deleted are waited for.
pub(super) fn objects<'a>(
    situation: &Situation<'_>,
    stage: Stage,
    content: &Content,
    objects: impl Iterator<Item = &'a Arc<DesiredObject>>,
) -> Option<Plan> {
    let mut leaving = None;
    let mut open = Vec::new();
    for desired in objects.filter(|desired| is_open(situation, content, desired)) {
        match existing(situation, &desired.key) {
            Some(seen)
                if seen.deleting
                    || situation.progress.cleanup.deleted.get(&desired.key) == Some(&seen.uid) =>
            {
                leaving = Some(&desired.key);
            }
            _ => open.push(desired),
        }
    }
    let plan =
        requests(situation, stage, open.into_iter(), |desired| match existing(situation, &desired.key) {
            // Its manifest allows it to be recreated if an immutable field changes.
            Some(seen)
                if situation.progress.delivery.replace.contains(&desired.key)
                    || jobs::is_replaced(situation, &desired.key, seen) =>
            {
                Step::Delete { key: desired.key.clone(), kind: desired.kind.clone(), uid: seen.uid.clone() }
            }
            seen => reclaim(situation, desired).unwrap_or_else(|| Step::Apply {
                desired: desired.clone(),
                uid: seen.map(|seen| seen.uid.clone()),
                stamp: stamp(situation, content),
                why: ApplyReason::Deliver,
            }),
        });
    plan.or_else(|| {
        // No event reports the deletion of an object without our label: read it again.
        let reason = Reason::WaitingForDeletion;
        let message = reason.message_with(leaving?.display_name());
        let plan = report::wait(situation, stage, SLOW_AFTER, &reason, &message, Vec::new());
        Some(plan.wake(Some(situation.now + RELEASE_CHECKS)))
    })
}

fn stamp(situation: &Situation<'_>, content: &Content) -> Stamp {
    Stamp {
        agent: situation.agent,
        stack: situation.goal.target.stack_id,
        checksum: content.checksum,
        sequence: record::stamp_sequence(situation.record, content),
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::ids::Checksum;
    use brokkr_api::reason::Wave;
    use brokkr_health::HealthState;

    use super::*;
    use crate::model::FailureClass;
    use crate::plan::fixtures::{Stack, desired, failed, key, second};

    /// Returns the names of the objects that are applied next.
    fn applied(stack: &Stack) -> Vec<String> {
        let plan = apply(&stack.situation(1, 10), &stack.content());
        let steps = plan.into_iter().flat_map(|plan| plan.steps);
        steps.filter_map(|step| step.key().map(|key| key.name.clone())).collect()
    }

    #[test]
    fn b3_changed_objects_are_applied_before_those_that_only_get_another_stamp() {
        let mut stack = Stack::of("", "ConfigMap");
        let changed = key("", "ConfigMap", Some("shop"), "zebra");
        stack.add(&changed);
        let other = DesiredObject {
            digest: Checksum::of(b"other"),
            ..desired(&changed, &serde_json::json!({ "data": {} }))
        };
        stack.content_mut().objects.insert(changed.clone(), Arc::new(other));
        assert_eq!(applied(&stack), ["zebra"]);
        stack.progress.delivery.written.insert(changed);
        assert_eq!(applied(&stack), ["web"]);
    }

    #[test]
    fn d5_j5_a_failing_object_holds_back_later_waves_but_not_its_own() {
        let mut stack = Stack::of("", "ConfigMap");
        stack.record.applied = None;
        for (name, wave) in [("zebra", 0), ("late", 1)] {
            let key = key("", "ConfigMap", Some("shop"), name);
            stack.add(&key);
            let wave = Wave::Number(wave);
            let other = DesiredObject { wave, ..desired(&key, &serde_json::json!({})) };
            stack.content_mut().objects.insert(key, Arc::new(other));
        }
        stack.progress.failures.objects.insert(stack.key.clone(), failed(FailureClass::Permanent, 0, 100));
        assert_eq!(applied(&stack), ["zebra"]);
        stack.progress.delivery.written.insert(key("", "ConfigMap", Some("shop"), "zebra"));
        assert_eq!(applied(&stack), ["late"], "waves do not wait");
        stack.goal.target.wave_wait_seconds = Some(300);
        assert_eq!(applied(&stack), Vec::<String>::new());
        stack.progress.delivery.written.clear();
        assert_eq!(applied(&stack), ["zebra"]);
    }

    #[test]
    fn an_object_that_is_being_deleted_is_waited_for_and_not_applied() {
        let mut stack = Stack::of("", "ConfigMap");
        stack.is(HealthState::Ready, 0);
        assert_eq!(applied(&stack), ["web"]);
        let key = stack.key.clone();
        stack.progress.cleanup.deleted.insert(key.clone(), "uid".into());
        assert_eq!(applied(&stack), Vec::<String>::new(), "we have deleted it");
        stack.progress.cleanup.deleted.clear();
        stack.objects.get_mut(&key).unwrap().deleting = true;
        let plan = apply(&stack.situation(1, 10), &stack.content()).expect("a wait");
        assert_eq!((plan.steps.len(), plan.wake_at), (0, Some(second(1) + RELEASE_CHECKS)));
    }

    #[test]
    fn a8_equal_content_does_not_run_a_job_again_that_was_complete_before_it_was_deleted() {
        let mut stack = Stack::of("batch", "Job");
        assert_eq!(applied(&stack), ["web"]);
        let key = stack.key.clone();
        stack.record.inventory_mut().get_mut(&key).unwrap().completed = true;
        assert_eq!(applied(&stack), Vec::<String>::new());
    }
}
