//! What a stack does whose drift is reported, not repaired.

use brokkr_health::HealthState;
use serde_json::json;

use super::*;
use crate::model::{FailedStep, FailureClass, Fingerprint, RetryState};
use crate::plan::fixtures::{Stack, failed, key};
use crate::plan::plan as plan_all;

/// Returns a stack with two applied objects, of which others have changed the first and deleted the second.
fn drifted() -> Stack {
    let mut stack = Stack::of("", "ConfigMap");
    stack.goal.target.drift = DriftPolicy::Report;
    stack.record.drift = DriftPolicy::Report;
    stack.is(HealthState::Ready, 0);
    stack.add(&key("", "ConfigMap", Some("shop"), "other"));
    stack.objects.values_mut().for_each(|seen| seen.fields = Some(Fingerprint::of("other")));
    stack
}

/// Plans, stores what was read, and the record if it is written. Returns the planned steps.
fn advance(stack: &mut Stack, now: i64) -> Vec<String> {
    let plan = plan_all(&stack.situation(now, 10));
    let mut names = Vec::new();
    for step in plan.steps {
        let object = step.key().map(|key| format!(" {}", key.name)).unwrap_or_default();
        names.push(format!("{}{object}", step.name()));
        match step {
            Step::WriteRecord(record) => stack.record = *record,
            Step::ReadDrift { desired, seen } => {
                let found = match stack.objects.contains_key(&desired.key) {
                    true => {
                        FoundEdits::Patch(json!({ "data": { "a": "2" }, "metadata": { "labels": null } }))
                    }
                    false => FoundEdits::Gone,
                };
                stack.progress.lookups.drift.insert(desired.key.clone(), (seen, found));
            }
            _ => {}
        }
    }
    names
}

fn condition(stack: &Stack) -> (ConditionStatus, String) {
    let found = stack.record.conditions.iter().find(|condition| condition.kind == ConditionKind::Drifted);
    found.map(|found| (found.status, found.message.to_string())).expect("the condition")
}

#[test]
fn f2_drift_of_a_stack_that_only_reports_it_is_named_and_not_repaired() {
    let mut stack = drifted();
    assert_eq!(advance(&mut stack, 1), ["read-drift other", "read-drift web"]);
    assert_eq!(advance(&mut stack, 20), ["write-record"]);
    let (status, message) = condition(&stack);
    assert_eq!(status, ConditionStatus::True);
    for part in
        ["2 objects changed by others, not repaired", "other: deleted by others", "data.a, metadata.labels"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    let last = stack
        .record
        .reports
        .iter()
        .rfind(|report| report.transition == Transition::Drifted)
        .expect("a report");
    assert_eq!(last.objects.len(), 2);
    for at in 21..40 {
        assert!(!advance(&mut stack, at).iter().any(|step| step.starts_with("apply")), "at {at}");
    }
    let writes = advance(&mut stack, 100);
    assert_eq!(writes, Vec::<String>::new(), "it is reported once");
}

#[test]
fn f2_drift_is_not_over_while_it_cannot_be_read() {
    let mut stack = drifted();
    advance(&mut stack, 1);
    advance(&mut stack, 20);
    let reported = stack.record.reports.len();
    // After a restart, nothing is read, and the reads fail.
    stack.progress.lookups.drift.clear();
    for key in stack.content().objects.keys() {
        let retry = RetryState { of: FailedStep::Other, ..failed(FailureClass::Transient, 21, 30) };
        stack.progress.failures.objects.insert(key.clone(), retry);
    }
    assert_eq!(advance(&mut stack, 22), Vec::<String>::new());
    // A record that is written for another reason.
    stack.record.drift = DriftPolicy::Repair;
    assert_eq!(advance(&mut stack, 23), ["write-record"]);
    assert_eq!((condition(&stack).0, stack.record.reports.len()), (ConditionStatus::True, reported));
    assert_eq!(advance(&mut stack, 30).len(), 2, "both are read again");
    stack.progress.failures.objects.clear();
    assert_eq!(advance(&mut stack, 31), Vec::<String>::new(), "it is as it was");
}

#[test]
fn f2_an_object_that_cannot_be_read_for_long_is_named_without_its_fields() {
    let mut stack = drifted();
    assert_eq!(advance(&mut stack, 1).len(), 2);
    stack.progress.lookups.drift.remove(&stack.key);
    let retry = RetryState { of: FailedStep::Other, ..failed(FailureClass::Transient, 0, 1000) };
    stack.progress.failures.objects.insert(stack.key.clone(), retry);
    assert_eq!(advance(&mut stack, 299), Vec::<String>::new());
    assert_eq!(advance(&mut stack, 300), ["write-record"]);
    assert_eq!(stack.record.reports.last().map(|report| report.objects.len()), Some(2));
}

#[test]
fn f2_switching_back_repairs() {
    let mut stack = drifted();
    advance(&mut stack, 1);
    advance(&mut stack, 20);
    stack.goal.target.drift = DriftPolicy::Repair;
    let steps = advance(&mut stack, 30);
    assert!(steps.contains(&"apply web".to_owned()), "{steps:?}");
}

#[test]
fn f2_fields_are_named_by_their_paths() {
    let patch = json!({ "metadata": { "annotations": { "example.com/a": "1" } },
        "spec": { "replicas": 5, "containers": [{ "name": "app", "image": "b" }, { "name": "old", "$patch": "delete" }],
                  "args": ["a"] } });
    let paths = [
        "metadata.annotations[example.com/a]",
        "spec.args",
        "spec.containers[name=app].image",
        "spec.containers[name=old]",
        "spec.replicas",
    ];
    let mut found = fields(&patch);
    found.sort();
    assert_eq!(found, paths);
}
