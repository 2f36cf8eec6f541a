use std::sync::Arc;

use brokkr_api::suspensions::Suspended;
use brokkr_api::{SequenceId, SuspensionId};
use brokkr_health::HealthState;
use brokkr_manifest::{Hook, Key};

use super::*;
use crate::model::{FailedStep, FailureClass, JobRun, JobStep, RecordedWait, RetryState, WaveClock};
use crate::plan::fixtures::{SEQUENCE, Stack, failed, key, second};

/// Returns a stack with a Deployment in wave 0 that is applied, and a ConfigMap in wave 1 that is not.
fn two_waves() -> (Stack, Key) {
    let mut stack = Stack::deployment();
    stack.goal.target.wave_wait_seconds = Some(300);
    stack.record.applied = None;
    let later = key("", "ConfigMap", Some("shop"), "later");
    stack.add(&later);
    let desired = DesiredObject { wave: Wave::Number(1), ..(*stack.content().objects[&later]).clone() };
    stack.content_mut().objects.insert(later.clone(), Arc::new(desired));
    stack.is(HealthState::Ready, 0);
    stack.progress.delivery.written.insert(stack.key.clone());
    (stack, later)
}

fn waited(stack: &mut Stack, seconds: u32) {
    let wait = RecordedWait { sequence: SEQUENCE, wave: Wave::Number(0), seconds };
    stack.wave_clock = WaveClock::restored(Some(&wait));
    stack.record.wait = Some(wait);
}

fn unready(stack: &Stack) -> Option<Wave> {
    first_unready(&stack.situation(1, 10), &stack.content())
}

#[test]
fn j5_a_wave_is_ready_when_everything_in_it_is_applied_and_ready() {
    let (mut stack, _) = two_waves();
    assert_eq!(unready(&stack), None);
    let first = Some(Wave::Number(0));
    stack.is(HealthState::Progressing, 0);
    assert_eq!(unready(&stack), first);
    stack.goal.target.wave_wait_seconds = None;
    assert_eq!(unready(&stack), None, "the waves do not wait");
    stack.goal.target.wave_wait_seconds = Some(300);
    stack.is(HealthState::Ready, 0);
    stack.progress.delivery.written.clear();
    assert_eq!(unready(&stack), first, "it is to be written");
    stack.progress.failures.objects.insert(stack.key.clone(), failed(FailureClass::Permanent, 0, 100));
    assert_eq!(unready(&stack), first, "it failed");
}

#[test]
fn j5_the_last_wave_is_not_waited_for() {
    let (mut stack, later) = two_waves();
    stack.progress.delivery.written.insert(later.clone());
    assert!(!stack.objects.contains_key(&later));
    assert_eq!(unready(&stack), None);
}

#[test]
fn j5_a_wave_that_becomes_unready_after_a_later_one_has_begun_is_not_waited_for() {
    let (mut stack, later) = two_waves();
    let last = key("", "ConfigMap", Some("shop"), "last");
    stack.add(&last);
    let desired = DesiredObject { wave: Wave::Number(2), ..(*stack.content().objects[&last]).clone() };
    stack.content_mut().objects.insert(last, Arc::new(desired));
    assert_eq!(unready(&stack), Some(Wave::Number(1)));
    stack.is(HealthState::Progressing, 0);
    assert_eq!(unready(&stack), Some(Wave::Number(0)));
    stack.progress.delivery.written.insert(later.clone());
    assert_eq!(unready(&stack), Some(Wave::Number(1)));
    stack.objects.insert(later, Stack::seen_as(HealthState::Ready));
    assert_eq!(unready(&stack), None);
}

#[test]
fn j5_hooks_wait_without_the_annotation() {
    let (mut stack, later) = two_waves();
    stack.goal.target.wave_wait_seconds = None;
    let hook = Hook {
        weight: 2,
        install: None,
        upgrade: None,
        delete_when_complete: false,
        delete_when_failed: false,
    };
    let wave = Wave::HooksAfter(2);
    let desired = DesiredObject { wave, hook: Some(hook), ..(*stack.content().objects[&later]).clone() };
    stack.content_mut().objects.insert(later, Arc::new(desired));
    assert_eq!(unready(&stack), Some(wave), "the last hooks, too, have to be ready");
    stack.is(HealthState::Progressing, 0);
    assert_eq!(unready(&stack), Some(Wave::Number(0)));
}

#[test]
fn j5_a_wait_is_told_once_recorded_in_quarters_and_over_after_its_time() {
    let (mut stack, _) = two_waves();
    stack.is(HealthState::Progressing, 0);
    let plan =
        |stack: &Stack| wait(&stack.situation(1, 10), &stack.content(), Wave::Number(0)).expect("a wait");
    let report = |plan: &Plan| {
        let Some(Step::WriteRecord(record)) = plan.steps.first() else { return None };
        record.reports.last().map(|report| (report.transition.clone(), report.reason.clone()))
    };
    let early = plan(&stack);
    assert_eq!(
        (early.steps.len(), early.wake_at, early.waits_for_wave),
        (0, Some(second(21)), Some(Wave::Number(0)))
    );
    waited(&mut stack, 20);
    let wave = Wave::Number(0);
    assert_eq!(report(&plan(&stack)), Some((Transition::Blocked, Reason::WaitingForWave { wave })));
    waited(&mut stack, 299);
    assert_eq!(plan(&stack).wake_at, Some(second(2)));
    waited(&mut stack, 300);
    let over = plan(&stack);
    assert_eq!(report(&over), Some((Transition::Failed, Reason::WaveNotReady { wave })));
    assert_eq!(over.stage, Stage::Apply, "it goes on when the wave is ready");
    let Some(Step::WriteRecord(record)) = over.steps.into_iter().next() else { panic!() };
    stack.record = *record;
    let told = plan(&stack);
    assert_eq!((told.steps.len(), told.wake_at), (0, None), "only an event goes on");
    stack.goal.target.sequence_id = SequenceId(SEQUENCE.0 + 1);
    assert_eq!(report(&plan(&stack)), None, "another version waits anew");
}

/// Returns a stack whose only hook has failed, as is recorded, and is to be deleted then.
fn failed_hook() -> Stack {
    let mut stack = Stack::of("batch", "Job");
    let key = stack.key.clone();
    let hook = Hook {
        weight: 0,
        install: None,
        upgrade: None,
        delete_when_complete: false,
        delete_when_failed: true,
    };
    let (wave, digest) = (Wave::HooksBefore(0), stack.content().objects[&key].digest);
    let desired = DesiredObject { wave, hook: Some(hook), ..(*stack.content().objects[&key]).clone() };
    stack.content_mut().objects.insert(key.clone(), Arc::new(desired));
    let runs = vec![JobRun { digest, outcome: RunOutcome::Failed }];
    stack.record.jobs = vec![JobStep { job: key.clone(), digest, replaces: None, runs }];
    stack.record.applied = None;
    stack.is(HealthState::Failed, 0);
    stack.progress.delivery.written.insert(key);
    stack
}

#[test]
fn d2_a_deletion_of_a_failed_hook_that_fails_is_made_again_when_its_time_has_come() {
    let mut stack = failed_hook();
    let plan = |stack: &Stack, now| {
        wait(&stack.situation(now, 10), &stack.content(), Wave::HooksBefore(0)).expect("a wait")
    };
    let is_deletion = |plan: &Plan| matches!(plan.steps.as_slice(), [Step::Delete { .. }]);
    assert!(is_deletion(&plan(&stack, 1)));
    let retry = RetryState { of: FailedStep::Other, ..failed(FailureClass::Transient, 1, 4) };
    stack.progress.failures.objects.insert(stack.key.clone(), retry);
    let early = plan(&stack, 2);
    let [Step::WriteRecord(record)] = early.steps.as_slice() else { panic!("{early:?}") };
    let report = record.reports.last().expect("a report");
    assert_eq!(report.transition, Transition::Failed);
    assert_eq!(report.objects[0].reason, Reason::NotReady, "not why the deletion failed");
    stack.record = (**record).clone();
    let waiting = plan(&stack, 2);
    assert_eq!((waiting.steps.len(), waiting.wake_at), (0, Some(second(4))));
    assert!(is_deletion(&plan(&stack, 4)));
}

#[test]
fn j5_a_wave_of_which_only_suspended_objects_are_not_ready_is_no_failure() {
    let (mut stack, _) = two_waves();
    let database = key("apps", "Deployment", Some("shop"), "database");
    stack.add(&database);
    for key in [stack.key.clone(), database.clone()] {
        stack.objects.insert(key.clone(), Stack::seen_as(HealthState::Progressing));
        stack.progress.delivery.written.insert(key);
    }
    let object = Some("Deployment/web".parse().expect("an object"));
    let suspended = Suspended { id: SuspensionId(uuid::Uuid::from_u128(7)), object, seconds: 3600 };
    stack.suspensions.set(&[suspended], second(0));
    waited(&mut stack, 300);
    let wave = Wave::Number(0);
    let reported = |stack: &Stack| {
        let plan = wait(&stack.situation(1, 10), &stack.content(), wave).expect("a wait");
        let Some(Step::WriteRecord(record)) = plan.steps.first() else { panic!("no report") };
        let report = record.reports.last().expect("a report");
        (report.transition.clone(), report.reason.clone(), plan.waits_for_wave)
    };
    assert_eq!(reported(&stack), (Transition::Failed, Reason::WaveNotReady { wave }, Some(wave)));
    stack.objects.insert(database, Stack::seen_as(HealthState::Ready));
    assert_eq!(reported(&stack), (Transition::Blocked, Reason::Suspended, None));
}
