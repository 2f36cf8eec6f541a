//! What a suspended stack, or a stack with a suspended object, does.

use brokkr_api::SuspensionId;
use brokkr_api::suspensions::Suspended;
use brokkr_health::HealthState;
use serde_json::json;

use super::*;
use crate::model::{Fingerprint, FoundEdits};
use crate::plan::fixtures::{Stack, key, second};
use crate::plan::plan as plan_all;

const ID: SuspensionId = SuspensionId(uuid::Uuid::from_u128(7));

/// Returns two applied objects, both changed by others, and a suspension of the first or of both.
fn drifted(object: Option<&str>) -> Stack {
    let mut stack = Stack::of("", "ConfigMap");
    stack.is(HealthState::Ready, 0);
    let other = key("", "ConfigMap", Some("shop"), "other");
    stack.add(&other);
    stack.objects.insert(other, Stack::seen_as(HealthState::Ready));
    stack.objects.values_mut().for_each(|seen| seen.fields = Some(Fingerprint::of("other")));
    let object = object.map(|object| object.parse().unwrap());
    stack.suspensions.set(&[Suspended { id: ID, object, seconds: 60 }], second(0));
    stack
}

/// Plans, and stores the record if it is written. Returns the planned steps with the names of their objects.
fn advance(stack: &mut Stack, now: i64) -> Vec<String> {
    let plan = plan_all(&stack.situation(now, 10));
    let mut names = Vec::new();
    for step in plan.steps {
        let object = step.key().map(|key| format!(" {}", key.name)).unwrap_or_default();
        names.push(format!("{}{object}", step.name()));
        match step {
            Step::WriteRecord(record) => stack.record = *record,
            Step::ReadEdits { desired, .. } => {
                let found = match stack.objects.contains_key(&desired.key) {
                    true => FoundEdits::Patch(json!({"data": {"a": "2"}})),
                    false => FoundEdits::Gone,
                };
                stack.progress.lookups.edits.insert(desired.key.clone(), found);
            }
            _ => {}
        }
    }
    stack.suspensions.forget_closed(&stack.record.suspensions);
    names
}

fn reported(stack: &Stack) -> (Transition, usize) {
    let last = stack.record.reports.last().expect("a report");
    (last.transition.clone(), last.objects.len())
}

#[test]
fn f2_a_suspended_object_is_left_alone_and_the_others_are_repaired() {
    let mut stack = drifted(Some("ConfigMap/web"));
    assert_eq!(advance(&mut stack, 1), ["write-record"]);
    assert_eq!(reported(&stack), (Transition::Suspended, 0));
    assert_eq!(stack.record.suspensions.len(), 1);
    assert_eq!(advance(&mut stack, 2), ["apply other"]);
}

#[test]
fn f2_of_a_suspended_stack_nothing_is_repaired_and_its_health_is_reported() {
    let mut stack = drifted(None);
    assert_eq!(advance(&mut stack, 1), ["write-record"]);
    stack.record.outcome.as_mut().unwrap().transition = Transition::Applied;
    assert_eq!(advance(&mut stack, 20), ["write-record"]);
    assert_eq!(reported(&stack).0, Transition::Healthy);
    assert_eq!(advance(&mut stack, 21), Vec::<String>::new());
}

#[test]
fn f2_at_its_end_the_edits_are_reported_before_anything_is_repaired() {
    let mut stack = drifted(None);
    advance(&mut stack, 1);
    stack.suspensions.set(&[], second(2));
    assert_eq!(advance(&mut stack, 3), ["read-edits other", "read-edits web"]);
    assert_eq!(advance(&mut stack, 4), ["write-record"]);
    assert_eq!(reported(&stack), (Transition::Resumed, 2));
    assert!(stack.record.suspensions.is_empty() && stack.suspensions.is_empty());
    assert_eq!(advance(&mut stack, 5), ["apply other", "apply web"]);
}

#[test]
fn f2_after_a_restart_the_manifest_is_fetched_before_the_edits_are_read() {
    let mut stack = drifted(None);
    advance(&mut stack, 1);
    stack.suspensions.set(&[], second(2));
    let content = stack.goal.content.take();
    assert_eq!(advance(&mut stack, 3), ["fetch"]);
    stack.goal.content = content;
    assert_eq!(advance(&mut stack, 4), ["read-edits other", "read-edits web"]);
}

#[test]
fn f2_many_edits_are_reported_in_parts() {
    let mut stack = drifted(None);
    for number in 0..40 {
        let key = key("", "ConfigMap", Some("shop"), &format!("more-{number:02}"));
        stack.add(&key);
        stack.objects.insert(key, Stack::seen_as(HealthState::Ready));
    }
    advance(&mut stack, 1);
    stack.suspensions.set(&[], second(2));
    assert_eq!(advance(&mut stack, 3).len(), 42);
    assert_eq!(advance(&mut stack, 4), ["write-record"]);
    let resumed = stack.record.reports.iter().filter(|report| report.transition == Transition::Resumed);
    assert_eq!(resumed.map(|report| report.objects.len()).collect::<Vec<_>>(), [20, 20, 2]);
}

#[test]
fn f2_an_object_that_others_deleted_meanwhile_is_named() {
    let mut stack = drifted(Some("ConfigMap/web"));
    advance(&mut stack, 1);
    let web = stack.key.clone();
    stack.objects.remove(&web);
    stack.suspensions.set(&[], second(2));
    assert_eq!(advance(&mut stack, 3), ["read-edits web"]);
    assert_eq!(advance(&mut stack, 4), ["write-record"]);
    let note = &stack.record.reports.last().unwrap().objects[0];
    assert_eq!((note.object.name.as_str(), &note.reason), ("web", &Reason::DeletedByOthers));
}

#[test]
fn f2_a_new_version_is_applied_except_for_the_suspended_object_and_waits_for_it() {
    let mut stack = drifted(Some("ConfigMap/web"));
    advance(&mut stack, 1);
    stack.record.applied = None;
    stack.progress.lookups.missing_rights = Some(Vec::new());
    let content = stack.content();
    let waits = wait_for_objects(&stack.situation(2, 10), &content).expect("a wait");
    assert_eq!(waits.stage, Stage::Apply);
    let [Step::WriteRecord(record)] = waits.steps.as_slice() else { panic!("{waits:?}") };
    assert_eq!(record.outcome.as_ref().map(|outcome| &outcome.reason), Some(&Reason::Suspended));
    stack.progress.delivery.written.insert(stack.key.clone());
    assert!(wait_for_objects(&stack.situation(2, 10), &content).is_none(), "it was written before");
}

#[test]
fn f2_a_stack_that_is_suspended_before_it_is_applied_or_removed_waits() {
    let mut stack = drifted(None);
    advance(&mut stack, 1);
    stack.record.applied = None;
    assert_eq!(advance(&mut stack, 2), ["write-record"]);
    assert_eq!(reported(&stack).0, Transition::Blocked);
    assert_eq!(advance(&mut stack, 3), Vec::<String>::new());
    stack.goal.target.removal = Some(brokkr_api::envelope::Removal::Deleted);
    assert_eq!(advance(&mut stack, 4), Vec::<String>::new());
}
