use brokkr_api::SequenceId;
use brokkr_api::objects::JobRef;
use brokkr_manifest::Key;

use super::*;
use crate::model::{Body, Uid};
use crate::plan::fixtures::{SEQUENCE, Stack};

/// Returns a stack with waiting waves, of which the Job with the uid `uid` was applied and completed.
fn completed() -> (Stack, Key) {
    let mut stack = Stack::of("batch", "Job");
    let key = stack.key.clone();
    stack.goal.target.wave_wait_seconds = Some(300);
    stack.is(HealthState::Ready, 0);
    stack.objects.get_mut(&key).unwrap().completed = true;
    stack.record.inventory_mut().get_mut(&key).unwrap().completed = true;
    (stack, key)
}

/// Changes the manifest of the Job.
fn change(stack: &mut Stack, key: &Key, content: &[u8]) {
    let mut desired = (*stack.content().objects[key]).clone();
    desired.digest = Checksum::of(content);
    stack.content_mut().objects.insert(key.clone(), desired.into());
}

fn intended(stack: &Stack) -> Vec<JobStep> {
    let mut record = stack.record.clone();
    intend(&stack.situation(1, 10), &stack.content(), &mut record, |key| stack.objects.get(key));
    record.jobs
}

#[test]
fn a8_a_job_that_has_completed_is_neither_replaced_nor_run_again() {
    let (mut stack, key) = completed();
    let steps = intended(&stack);
    assert_eq!((steps.len(), steps[0].replaces.clone()), (1, None));
    assert_eq!(steps[0].outcome(), Some(RunOutcome::Complete));
    stack.record.jobs = steps;
    let content = stack.content();
    assert!(has_ended(&stack.situation(1, 10), &content.objects[&key]));
}

#[test]
fn a8_another_manifest_replaces_the_job_until_it_has_run_before() {
    let (mut stack, key) = completed();
    change(&mut stack, &key, b"second");
    stack.record.jobs = intended(&stack);
    assert_eq!(stack.record.jobs[0].replaces, Some(Uid::from("uid")));
    assert_eq!(stack.record.jobs[0].outcome(), None);
    let content = stack.content();
    assert_eq!(state(&stack.situation(1, 10), &content.objects[&key]), Some(JobState::Open));
    // The new Job exists, although the agent did not record that before a crash.
    stack.objects.get_mut(&key).unwrap().uid = Uid::from("new");
    let ended = JobState::Ended { outcome: RunOutcome::Complete, recorded: false };
    assert_eq!(state(&stack.situation(1, 10), &content.objects[&key]), Some(ended));
    let steps = intended(&stack);
    assert_eq!((steps[0].replaces.clone(), steps[0].outcome()), (None, Some(RunOutcome::Complete)));
    stack.record.jobs = steps;
    change(&mut stack, &key, b"");
    let steps = intended(&stack);
    assert_eq!(steps[0].outcome(), Some(RunOutcome::Complete), "it has run before");
    assert_eq!(steps[0].replaces, Some(Uid::from("new")), "the Job of the other manifest goes");
}

#[test]
fn a8_only_a_rerun_runs_a_completed_job_again() {
    let (mut stack, key) = completed();
    stack.goal.target.rerun = vec![JobRef { namespace: "shop".into(), name: "web".into() }];
    let steps = intended(&stack);
    assert_eq!((steps[0].replaces.clone(), steps[0].outcome()), (Some(Uid::from("uid")), None));
    // A newer version comes before the Job was replaced.
    stack.record.jobs = steps;
    stack.record.inventory_mut().get_mut(&key).unwrap().completed = false;
    stack.goal.target.rerun.clear();
    stack.goal.target.sequence_id = SequenceId(SEQUENCE.0 + 1);
    assert_eq!(intended(&stack)[0].replaces, Some(Uid::from("uid")));
}

#[test]
fn a_job_of_another_client_is_not_replaced() {
    let (mut stack, key) = completed();
    change(&mut stack, &key, b"second");
    stack.objects.get_mut(&key).unwrap().stack = None;
    assert_eq!(intended(&stack)[0].replaces, None);
}

#[test]
fn without_waiting_waves_a_job_is_no_step() {
    let (mut stack, _) = completed();
    stack.goal.target.wave_wait_seconds = None;
    assert!(intended(&stack).is_empty());
}

#[test]
fn a8_a_job_that_was_a_step_stays_one_if_the_waves_do_not_wait_any_more() {
    let (mut stack, key) = completed();
    change(&mut stack, &key, b"second");
    stack.record.jobs = intended(&stack);
    stack.objects.get_mut(&key).unwrap().uid = Uid::from("new");
    stack.goal.target.wave_wait_seconds = None;
    change(&mut stack, &key, b"");
    let steps = intended(&stack);
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].outcome(), Some(RunOutcome::Complete), "it has run before");
    assert_eq!(steps[0].replaces, Some(Uid::from("new")), "the Job of the other manifest goes");
}

#[test]
fn a8_the_failure_of_a_job_with_a_time_to_live_is_recorded_until_a_rerun() {
    for ttl in [None, Some(60)] {
        let (mut stack, key) = completed();
        stack.record.inventory_mut().get_mut(&key).unwrap().completed = false;
        stack.is(HealthState::Failed, 0);
        let mut desired = (*stack.content().objects[&key]).clone();
        desired.body = Body::new(&serde_json::json!({"spec": {"ttlSecondsAfterFinished": ttl}}));
        stack.content_mut().objects.insert(key.clone(), desired.into());
        stack.record.jobs = intended(&stack);
        let next = recorded(&stack.situation(1, 10), &stack.content(), &stack.record);
        assert_eq!(next.is_some(), ttl.is_some(), "its status says so while it exists");
        let Some(next) = next else { continue };
        stack.record = next;
        stack.objects.clear();
        let content = stack.content();
        assert!(has_ended(&stack.situation(1, 10), &content.objects[&key]));
        assert_eq!(intended(&stack)[0].outcome(), Some(RunOutcome::Failed), "also with equal content");
        stack.goal.target.rerun = vec![JobRef { namespace: "shop".into(), name: "web".into() }];
        assert_eq!(intended(&stack)[0].outcome(), None);
    }
}
