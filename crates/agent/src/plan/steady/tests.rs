//! When an object is repaired, swept or diagnosed.

use std::collections::HashSet;

use brokkr_api::SequenceId;
use brokkr_health::HealthState;

use super::*;
use crate::model::fixtures::seen;
use crate::model::{FailedStep, FailureClass, Fingerprint, RetryState, Rival};
use crate::plan::fixtures::{SEQUENCE, Stack, failed, key, second};

/// Returns a ready object that another client has changed.
fn drifted() -> Stack {
    let mut stack = Stack::of("", "ConfigMap");
    stack.is(HealthState::Ready, 0);
    stack.objects.values_mut().for_each(|seen| seen.fields = Some(Fingerprint::of("other")));
    stack
}

/// Returns the planned step, and when to check again.
fn repaired(stack: &Stack, now: i64) -> (&'static str, Option<Timestamp>) {
    named(repair(&stack.situation(now, 10), &stack.key))
}

fn swept(stack: &Stack) -> (&'static str, Option<Timestamp>) {
    named(repair_or_sweep(&stack.situation(1, 10), &stack.key, true))
}

fn named((step, wake_at): (Option<Step>, Option<Timestamp>)) -> (&'static str, Option<Timestamp>) {
    let name = match step {
        None => "nothing",
        Some(Step::Apply { why: ApplyReason::Sweep { .. }, .. }) => "sweep",
        Some(Step::Apply { .. }) => "apply",
        Some(Step::ReadObject { .. }) => "read",
        Some(Step::FindRivals { .. }) => "find rivals",
        Some(other) => panic!("{other:?}"),
    };
    (name, wake_at)
}

#[test]
fn d4_only_a_changed_object_is_repaired_and_an_unchanged_one_is_swept() {
    let mut stack = drifted();
    assert_eq!(repaired(&stack, 1), ("apply", None));
    stack.is(HealthState::Ready, 0);
    assert_eq!(repaired(&stack, 1), ("nothing", None));
    assert_eq!(swept(&stack), ("sweep", None));
    stack.objects.values_mut().for_each(|seen| seen.deleting = true);
    assert_eq!(swept(&stack), ("nothing", None));
}

#[test]
fn c4_an_object_of_another_owner_is_not_repaired_whether_it_has_our_label_or_was_read() {
    let mut stack = drifted();
    stack.objects.values_mut().for_each(|seen| seen.stack = Some("other".into()));
    assert_eq!(repaired(&stack, 1), ("nothing", None));
    let taken = stack.objects.remove(&stack.key).unwrap();
    stack.progress.lookups.objects.insert(stack.key.clone(), Some(taken));
    assert_eq!(repaired(&stack, 1), ("nothing", None));
}

#[test]
fn d4_an_object_that_lost_its_label_is_read_and_then_written() {
    let mut stack = drifted();
    stack.objects.clear();
    assert_eq!(repaired(&stack, 1), ("read", None));
    // A failed read is made again when its time has come; a failed apply says nothing about the read.
    let retry = RetryState { of: FailedStep::Other, ..failed(FailureClass::Transient, 0, 2) };
    stack.progress.failures.objects.insert(stack.key.clone(), retry);
    assert_eq!(repaired(&stack, 1), ("nothing", Some(second(2))));
    assert_eq!(repaired(&stack, 2), ("read", None));
    stack.progress.failures.objects.clear();
    for found in [None, Some(seen("uid", 2))] {
        stack.progress.lookups.objects.insert(stack.key.clone(), found);
        assert_eq!(repaired(&stack, 1), ("apply", None));
    }
}

#[test]
fn c5_an_object_of_another_client_is_not_overwritten_with_the_earlier_content() {
    let mut stack = drifted();
    stack.objects.clear();
    let mut earlier = (*stack.content()).clone();
    earlier.sequence = SequenceId(SEQUENCE.0 - 1);
    stack.goal.fallback = Some(Arc::new(earlier));
    stack.goal.content = None;
    let mut found = |uid: &str| {
        stack.progress.lookups.objects.insert(stack.key.clone(), Some(seen(uid, 2)));
        repaired(&stack, 1).0
    };
    assert_eq!(found("uid"), "apply", "the object that was applied");
    assert_eq!(found("other"), "nothing");
}

#[test]
fn b8_a_job_that_was_complete_when_it_was_deleted_is_not_created_again() {
    let mut stack = Stack::of("batch", "Job");
    stack.progress.lookups.objects.insert(stack.key.clone(), None);
    assert_eq!(repaired(&stack, 1), ("apply", None));
    stack.completed.insert(stack.key.clone(), "uid".into());
    assert_eq!(repaired(&stack, 1), ("nothing", None), "it was seen complete");
    stack.completed.clear();
    let key = stack.key.clone();
    stack.record.inventory_mut().get_mut(&key).unwrap().completed = true;
    assert_eq!(repaired(&stack, 1), ("nothing", None), "it was recorded as complete");
}

#[test]
fn the_rivals_are_looked_up_once_before_the_repair_that_makes_an_object_contested() {
    let mut stack = drifted();
    let is_lookup = |stack: &Stack, now| repaired(stack, now).0 == "find rivals";
    stack.was_repaired(CONTESTED_AFTER - 2, 0);
    assert!(!is_lookup(&stack, 1), "not yet");
    stack.was_repaired(CONTESTED_AFTER - 1, 0);
    assert!(is_lookup(&stack, 1));
    assert!(!is_lookup(&stack, 60), "the earlier repairs are forgotten");
    let rival = Rival { manager: "kubectl".into(), fields: Vec::new() };
    stack.progress.repairs.rivals.insert(stack.key.clone(), vec![rival]);
    assert!(!is_lookup(&stack, 1), "they are known");
    stack.progress.repairs.rivals.clear();
    stack.objects.clear();
    stack.progress.lookups.objects.insert(stack.key.clone(), None);
    assert!(!is_lookup(&stack, 1), "there is no object that could name them");
}

#[test]
fn g3_pods_are_read_after_five_seconds_and_again_after_a_while() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    let diagnosed = |stack: &Stack, now| unexplained(&stack.situation(now, 10), &stack.content()).is_some();
    assert!(!diagnosed(&stack, 4));
    assert!(diagnosed(&stack, 5));
    stack.progress.readiness.causes.insert(stack.key.clone(), (second(5), None));
    assert!(!diagnosed(&stack, 14));
    assert!(diagnosed(&stack, 15));
    stack.objects.values_mut().for_each(|seen| seen.deleting = true);
    assert!(!diagnosed(&stack, 15), "it is being deleted");
    stack.is(HealthState::Ready, 0);
    stack.progress.readiness.unready_since = Some(second(0));
    assert!(!diagnosed(&stack, 15), "another object is unready");
}

#[test]
fn g3_the_pods_of_at_most_three_workloads_are_read_within_one_interval() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    for number in 0..3 {
        let key = key("apps", "Deployment", Some("shop"), &format!("web-{number}"));
        stack.add(&key);
        stack.objects.insert(key.clone(), Stack::seen_as(HealthState::Progressing));
        let step = unexplained(&stack.situation(6, 10), &stack.content());
        assert!(matches!(step, Some(Step::Diagnose { .. })), "{number} were read");
        stack.progress.readiness.causes.insert(key, (second(6), None));
    }
    assert!(unexplained(&stack.situation(6, 10), &stack.content()).is_none());
}

#[test]
fn a_stopped_delivery_repairs_all_but_the_namespaces_that_it_takes_back() {
    let mut stack = drifted();
    let planned = |stack: &Stack, stage| {
        let plan = repair_all(&stack.situation(1, 10), Plan::new(stage), stack.record.inventory.keys());
        plan.steps.len()
    };
    assert_eq!(planned(&stack, Stage::Stopped), 1);
    stack.record.made.prerequisites.insert(stack.key.clone());
    assert_eq!(planned(&stack, Stage::Stopped), 1, "it is not deleted");
    stack.progress.cleanup.deleted.insert(stack.key.clone(), "uid".into());
    assert_eq!(planned(&stack, Stage::Stopped), 0);
    stack.record.made.prerequisites.clear();
    assert_eq!(planned(&stack, Stage::Stopped), 1, "an earlier version has made it");
}

#[test]
fn j4_blindness_is_reported_only_when_no_request_is_under_way() {
    let mut stack = Stack::deployment();
    stack.unwatched = true;
    stack.progress.readiness.unready_since = Some(second(0));
    let busy = HashSet::from([key("", "ConfigMap", Some("shop"), "settings")]);
    let mut situation = stack.situation(60, 10);
    let planned = |situation: &Situation<'_>| plan(situation, &stack.content(), &stack.record);
    let blind = planned(&situation);
    assert!(matches!(blind.steps.as_slice(), [Step::WriteRecord(_)]), "{blind:?}");
    situation.busy = &busy;
    let waiting = planned(&situation);
    assert!(waiting.steps.is_empty() && waiting.unready && !waiting.watch.is_empty(), "{waiting:?}");
}
