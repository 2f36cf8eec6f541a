//! When a stack counts as healthy, and what is reported until then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::order::Rank;

use super::*;
use crate::health::Health;
use crate::model::fixtures::seen;
use crate::model::{
    Body, Cause, DesiredObject, Entry, Goal, Holder, Observed, Origin, OtherStacks, Outcome, Progress, Uid,
};
use crate::resource::{Kind, Served};

/// A stack with one workload that was applied at second 0, and what the agent knows about it.
struct Stack {
    key: Key,
    goal: Goal,
    record: Record,
    progress: Progress,
    objects: HashMap<Key, SeenObject>,
    completed: HashMap<Key, Uid>,
}

impl Observed for Stack {
    fn seen(&self, key: &Key) -> Option<&SeenObject> {
        self.objects.get(key)
    }

    fn synced(&self, _: &Key) -> bool {
        true
    }

    fn completed(&self, key: &Key) -> Option<&Uid> {
        self.completed.get(key)
    }
}

/// This agent has no other stacks.
struct NoOthers;

impl OtherStacks for NoOthers {
    fn holder(&self, _: &Key) -> Option<Holder> {
        None
    }

    fn successor(&self, _: &Key) -> Option<String> {
        None
    }

    fn is_prerequisite_of_another_stack(&self, _: &Key) -> bool {
        false
    }

    fn has_pending_content(&self) -> bool {
        false
    }
}

const AGENT: AgentId = AgentId(uuid::Uuid::from_u128(1));
const STACK: StackId = StackId(uuid::Uuid::from_u128(2));
const SEQUENCE: SequenceId = SequenceId(7);

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_000 + second).unwrap()
}

impl Stack {
    fn of(group: &str, kind: &str) -> Self {
        let key = Key {
            group: group.into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        };
        let kind = Kind::from(Served {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: true,
        });
        let checksum = Checksum::of(b"");
        let target = TargetStack {
            project: "default".into(),
            stack_id: STACK,
            stack_name: "web".into(),
            sequence_id: SEQUENCE,
            checksum,
            parsed_digest: checksum,
            removal: None,
            grant: None,
            approvals: Vec::new(),
            published_at: second(0),
            targeted_at: second(0),
            released_at: second(0),
        };
        let desired = DesiredObject {
            kind: kind.clone(),
            key: key.clone(),
            body: Body::new(&serde_json::json!({})),
            digest: checksum,
            wave: 0,
            rank: Rank::Workload,
            defines: None,
            binds: None,
            replace: false,
        };
        let content = Content {
            sequence: SEQUENCE,
            checksum,
            objects: BTreeMap::from([(key.clone(), Arc::new(desired))]),
            definitions: HashMap::new(),
            fetched: second(0),
            verified: second(0),
        };
        let entry = Entry {
            wave: 0,
            kind,
            origin: Origin::Created,
            uid: Some(Uid::from("uid")),
            digest: Some(checksum),
            fields: None,
            completed: false,
        };
        let outcome = Outcome {
            transition: Transition::Applied,
            sequence: SEQUENCE,
            reason: Reason::None,
            message: Message::default(),
        };
        let record = Record {
            applied: Some(SEQUENCE),
            inventory: BTreeMap::from([(key.clone(), entry)]).into(),
            outcome: Some(outcome),
            total: 1,
            ..Record::new(&target, 1)
        };
        let goal = Goal { target, content: Some(Arc::new(content)), fallback: None };
        let progress = Progress::default();
        Self { key, goal, record, progress, objects: HashMap::new(), completed: HashMap::new() }
    }

    fn deployment() -> Self {
        Self::of("apps", "Deployment")
    }

    /// The object is in this state from now on.
    fn is(&mut self, state: HealthState, at: i64) {
        let health = Health { state, reason: Reason::NotReady, message: Message::default() };
        let (agent, stack) = (Some(AGENT.into()), Some(STACK.into()));
        let seen = SeenObject { agent, stack, health: Arc::new(health), ..seen("uid", 1) };
        self.objects.insert(self.key.clone(), seen);
        let readiness = &mut self.progress.readiness;
        let is_ready = state == HealthState::Ready;
        readiness.ready_since = is_ready.then(|| second(at));
        readiness.unready_since = (!is_ready).then(|| second(at));
    }

    /// The Pods show this cause.
    fn pods_show(&mut self, reason: Reason, at: i64) {
        let cause = Cause { reason, message: Message::new("pod web-1") };
        self.progress.readiness.causes.insert(self.key.clone(), (second(at), Some(cause)));
    }

    /// Returns what is reported at this time, and when to check again. The record is written as reported.
    fn at(&mut self, now: i64, stable_after: i64) -> (Option<Transition>, Option<i64>) {
        let content = self.goal.content.clone().unwrap();
        let reported = {
            let situation = self.situation(now, stable_after);
            report_health(&situation, &content, &self.record)
        };
        let wake_at = reported.wake_at.map(|at| at.as_second() - 1_000);
        let transition = reported.step.map(|next| {
            let new = next.reports.len() > self.record.reports.len();
            self.record = next;
            self.progress.readiness.reported_at = Some(second(now));
            new.then(|| self.record.outcome.clone().unwrap().transition)
        });
        (transition.flatten(), wake_at)
    }

    fn situation(&self, now: i64, stable_after: i64) -> Situation<'_> {
        static NONE: std::sync::LazyLock<HashSet<Key>> = std::sync::LazyLock::new(HashSet::new);
        Situation {
            agent: AGENT,
            home: "brokkr-system",
            session: 1,
            goal: &self.goal,
            record: Some(&self.record),
            held: true,
            progress: &self.progress,
            observed: self,
            other_stacks: &NoOthers,
            busy: &NONE,
            stable_after: SignedDuration::from_secs(stable_after),
            now: second(now),
        }
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
