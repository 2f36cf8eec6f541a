//! When a stack counts as healthy, and what is reported until then.

use brokkr_api::SequenceId;
use brokkr_api::report::Condition;

use super::*;
use crate::model::{Cause, Progress, Uid};
use crate::plan::fixtures::{SEQUENCE, Stack, key, second};

impl Stack {
    /// The Pods show this cause.
    fn pods_show(&mut self, reason: Reason, at: i64) {
        let cause = Cause { reason, message: Message::new("pod web-1") };
        self.progress.readiness.causes.insert(self.key.clone(), (second(at), Some(cause)));
    }

    /// Returns what is reported at this time, and when to check again. The record is written as reported.
    fn at(&mut self, now: i64, stable_after: i64) -> (Option<Transition>, Option<i64>) {
        let reported = {
            let situation = self.situation(now, stable_after);
            report_health(&situation, &self.content(), &self.record)
        };
        let wake_at = reported.wake_at.map(|at| at.as_second() - 1_000);
        let transition = reported.step.map(|next| {
            let new = next.reports.get(self.record.reports.len()).map(|report| report.transition.clone());
            self.record = next;
            self.progress.readiness.reported_at = Some(second(now));
            new
        });
        (transition.flatten(), wake_at)
    }

    fn reason(&self) -> Reason {
        self.record.outcome.clone().unwrap().reason
    }
}

#[test]
fn f6_a_workload_is_healthy_only_after_it_was_ready_for_a_while() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Ready, 2);
    assert_eq!(stack.at(2, 10), (None, Some(12)), "ready, and checked again when it is stable");
    assert_eq!(stack.at(11, 10), (None, Some(12)));
    assert_eq!(stack.at(12, 10).0, Some(Transition::Healthy));
    // It stays healthy, also if it becomes ready again later.
    stack.is(HealthState::Ready, 20);
    assert_eq!(stack.at(20, 10), (None, None));
}

#[test]
fn f6_objects_without_pods_need_not_be_stable() {
    let mut stack = Stack::of("", "ConfigMap");
    stack.is(HealthState::Ready, 0);
    assert_eq!(stack.at(0, 10).0, Some(Transition::Healthy));
}

#[test]
fn f6_after_a_crash_it_takes_two_minutes_also_after_a_restart_of_the_agent() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    stack.pods_show(Reason::CrashLoopBackOff, 1);
    assert_eq!(stack.at(5, 10).0, Some(Transition::Degraded), "a crash counts as a failure at once");
    assert_eq!(stack.record.crashed, Some(SEQUENCE));
    // The agent is restarted: what it had seen is lost, and the record remains.
    stack.progress = Progress::default();
    stack.is(HealthState::Ready, 30);
    assert_eq!(stack.at(30, 10), (None, Some(40)), "a recovery is reported after a while");
    assert_eq!(stack.at(40, 10), (Some(Transition::Degraded), Some(150)));
    assert_eq!(stack.reason(), Reason::Stabilizing { seconds: 120 });
    assert_eq!(stack.at(149, 10).0, None);
    assert_eq!(stack.at(150, 10).0, Some(Transition::Healthy));
    assert_eq!(stack.record.crashed, None, "the crash is forgotten");
}

#[test]
fn f6_a_crash_of_an_earlier_version_does_not_count() {
    let mut stack = Stack::deployment();
    stack.record.crashed = Some(SequenceId(6));
    stack.is(HealthState::Ready, 0);
    assert_eq!(stack.at(10, 10).0, Some(Transition::Healthy));
}

#[test]
fn f6_a_probe_that_fails_is_named_while_it_starts_and_a_failure_after_that() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    stack.pods_show(Reason::ReadinessProbeFailing, 6);
    assert_eq!(stack.at(6, 10), (None, Some(8)));
    assert_eq!(stack.at(8, 10).0, Some(Transition::Applied), "it says what it waits for");
    assert_eq!(stack.at(14, 10).0, None);
    assert_eq!(stack.at(15, 10).0, Some(Transition::Degraded));
    assert_eq!(stack.reason(), Reason::ReadinessProbeFailing);
}

#[test]
fn f6_a_changed_reason_is_reported_and_other_words_for_the_same_problem_are_not() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    stack.pods_show(Reason::ErrImagePull, 1);
    assert_eq!(stack.at(5, 10).0, Some(Transition::Degraded));
    stack.pods_show(Reason::ImagePullBackOff, 20);
    assert_eq!(stack.at(20, 10).0, None, "the same problem");
    stack.pods_show(Reason::CrashLoopBackOff, 21);
    assert_eq!(stack.at(21, 10).0, Some(Transition::Degraded));
    stack.pods_show(Reason::Unschedulable, 25);
    assert_eq!(stack.at(25, 10), (None, Some(31)), "reasons are reported at most every ten seconds");
    assert_eq!(stack.at(31, 10).0, Some(Transition::Degraded));
}

#[test]
fn b8_a_completed_job_is_recorded_and_not_missing_when_it_is_gone() {
    let mut stack = Stack::of("batch", "Job");
    stack.is(HealthState::Ready, 0);
    stack.objects.values_mut().for_each(|seen| seen.completed = true);
    assert_eq!(stack.at(0, 10).0, Some(Transition::Healthy), "a Job does not keep Pods running");
    assert!(stack.record.inventory[&stack.key].completed);
    stack.objects.clear();
    assert_eq!(stack.at(60, 10), (None, None), "it is not missing");
    // Another Job of the same name was complete: this one is missing.
    let mut stack = Stack::of("batch", "Job");
    stack.completed.insert(stack.key.clone(), Uid::from("other"));
    stack.progress.readiness.unready_since = Some(second(0));
    let content = stack.goal.content.clone().unwrap();
    let (ready, worst) = of(&stack.situation(1, 10), &content);
    assert_eq!((ready, worst.unwrap().reason), (0, Reason::Missing));
    // The same Job was seen complete before it was deleted, and the record is not written yet.
    stack.completed.insert(stack.key.clone(), Uid::from("uid"));
    assert_eq!(stack.at(1, 10).0, Some(Transition::Healthy));
    assert!(stack.record.inventory[&stack.key].completed);
}

#[test]
fn f6_ready_objects_are_counted_also_while_the_stack_is_not_stable_yet() {
    let mut stack = Stack::deployment();
    let settings = key("", "ConfigMap", Some("shop"), "settings");
    stack.add(&settings);
    stack.objects.insert(settings, Stack::seen_as(HealthState::Ready));
    stack.is(HealthState::Progressing, 0);
    assert_eq!(of(&stack.situation(1, 10), &stack.content()).0, 1);
    stack.is(HealthState::Ready, 2);
    assert_eq!(stack.at(2, 10), (None, Some(12)), "nothing is reported");
    assert_eq!(stack.record.ready, 2, "but it is recorded");
}

#[test]
fn the_worst_object_has_a_cause_or_has_failed() {
    let mut stack = Stack::deployment();
    let [first, last] = ["a", "z"].map(|name| key("apps", "Deployment", Some("shop"), name));
    for key in [&first, &last] {
        stack.add(key);
        stack.objects.insert(key.clone(), Stack::seen_as(HealthState::Progressing));
    }
    stack.is(HealthState::Progressing, 0);
    let worst = |stack: &Stack| of(&stack.situation(1, 10), &stack.content()).1.unwrap().key;
    assert_eq!(worst(&stack), first, "the first of equals");
    stack.objects.insert(last.clone(), Stack::seen_as(HealthState::Failed));
    assert_eq!(worst(&stack), last, "it has failed");
    stack.pods_show(Reason::ReadinessProbeFailing, 1);
    assert_eq!(worst(&stack), stack.key, "its cause is known");
}

#[test]
fn a_stack_that_need_not_be_stable_need_not_be_after_a_crash() {
    let mut stack = Stack::deployment();
    stack.record.crashed = Some(SEQUENCE);
    stack.is(HealthState::Ready, 0);
    assert_eq!(stack.at(0, 0).0, Some(Transition::Healthy));
}

#[test]
fn a_stack_is_unready_if_an_object_is_and_not_while_it_stabilizes() {
    let mut stack = Stack::deployment();
    let is_unready =
        |stack: &Stack| report_health(&stack.situation(1, 10), &stack.content(), &stack.record).unready;
    stack.is(HealthState::Ready, 0);
    assert!(!is_unready(&stack));
    stack.is(HealthState::Progressing, 0);
    assert!(is_unready(&stack));
}

#[test]
fn the_reported_reason_stays_until_the_pods_are_read_again() {
    let mut stack = Stack::deployment();
    stack.is(HealthState::Progressing, 0);
    stack.pods_show(Reason::CrashLoopBackOff, 1);
    assert_eq!(stack.at(5, 10).0, Some(Transition::Degraded));
    stack.progress.readiness.causes.clear();
    assert_eq!(stack.at(60, 10).0, None, "the status alone is less specific");
    stack.progress.readiness.causes.insert(stack.key.clone(), (second(60), None));
    assert_eq!(stack.at(61, 10).0, Some(Transition::Degraded), "the Pods show no cause any more");
    assert_eq!(stack.reason(), Reason::NotReady);
    // An object without Pods has nothing to read.
    let mut stack = Stack::of("example.com", "Database");
    stack.is(HealthState::Progressing, 0);
    stack.record.outcome.as_mut().unwrap().transition = Transition::Degraded;
    assert_eq!(stack.at(5, 10).0, Some(Transition::Degraded));
}

#[test]
fn j4_blindness_is_reported_once_after_twenty_seconds() {
    let mut stack = Stack::deployment();
    stack.progress.readiness.unready_since = Some(second(0));
    let reason = Reason::CannotWatch { kind: "Deployment".into() };
    let blind = |stack: &Stack, now| report_blindness(&stack.situation(now, 10), &stack.record, &reason);
    let early = blind(&stack, 19);
    assert_eq!((early.step, early.wake_at), (None, Some(second(20))));
    // Another problem of a degraded stack is no report about the watch.
    stack.record.outcome.as_mut().unwrap().transition = Transition::Degraded;
    let next = blind(&stack, 20).step.expect("a report");
    assert_eq!(next.outcome.as_ref().unwrap().reason, reason);
    stack.record = next;
    let known = blind(&stack, 60);
    assert_eq!((known.step, known.wake_at), (None, None));
}

#[test]
fn repairs_are_reported_together_and_a_contest_when_it_begins_and_ends() {
    let mut stack = Stack::of("", "ConfigMap");
    stack.is(HealthState::Ready, 0);
    assert_eq!(stack.at(0, 10).0, Some(Transition::Healthy));
    assert_eq!(stack.at(1, 10), (None, None), "nothing was repaired");
    stack.progress.repairs.count = 2;
    assert_eq!(stack.at(2, 10).0, Some(Transition::Repaired));
    let last = |stack: &Stack| stack.record.reports.last().unwrap().reason.clone();
    assert_eq!(last(&stack), Reason::Drift { repairs: 2 });
    assert_eq!(stack.reason(), Reason::None, "it stays healthy");
    (stack.progress.repairs.count, stack.progress.repairs.reported_at) = (1, Some(second(2)));
    assert_eq!(stack.at(3, 10), (None, Some(32)), "at most every thirty seconds");
    stack.progress.repairs.count = 0;
    assert_eq!(stack.at(4, 10), (None, None), "there is nothing to report later");
    stack.was_repaired(6, 5);
    stack.progress.repairs.count = 1;
    assert_eq!(stack.at(5, 10).0, Some(Transition::Repaired), "a contest is reported at once");
    assert!(matches!(last(&stack), Reason::Contested { repairs: 6, .. }));
    contested(&mut stack, true);
    (stack.progress.repairs.count, stack.progress.repairs.reported_at) = (0, Some(second(5)));
    assert_eq!(stack.at(6, 10).0, None, "and once");
    assert_eq!(stack.at(65, 10).0, Some(Transition::Repaired), "its end is reported, too");
    assert_eq!(last(&stack), Reason::ContestOver);
    contested(&mut stack, false);
    assert_eq!(stack.at(66, 10).0, None);
}

/// The stored condition says whether an object is contested.
fn contested(stack: &mut Stack, is_contested: bool) {
    let mut condition = stack.record.conditions.pop().unwrap_or_else(|| Condition {
        kind: ConditionKind::Contested,
        status: ConditionStatus::Unknown,
        reason: Reason::None,
        message: Message::default(),
        since: second(0),
        sequence_id: SEQUENCE,
    });
    condition.status = if is_contested { ConditionStatus::True } else { ConditionStatus::False };
    stack.record.conditions = vec![condition];
}
