//! A stack that was applied, with what the agent knows about it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Message, Reason, Wave};
use brokkr_api::report::Transition;
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_health::{Health, HealthState};
use brokkr_manifest::Key;
use brokkr_manifest::order::Rank;
use jiff::{SignedDuration, Timestamp};

use crate::model::fixtures::seen;
use crate::model::{
    Body, Content, DesiredObject, Entry, FailedStep, Failure, FailureClass, Fight, Goal, Holder, Observed,
    Origin, OtherStacks, Outcome, Progress, Record, RetryState, SeenObject, Situation, Suspensions, Uid,
    WaveClock,
};
use crate::resource::{Kind, Served};

pub const AGENT: AgentId = AgentId(uuid::Uuid::from_u128(1));
pub const STACK: StackId = StackId(uuid::Uuid::from_u128(2));
pub const SEQUENCE: SequenceId = SequenceId(7);
/// The run of the agent that plans; the record was written by the one before.
pub const SESSION: i64 = 2;

/// Returns a time, in seconds since the stack was applied.
pub fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_000 + second).unwrap()
}

pub fn key(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Key {
    Key { group: group.into(), kind: kind.into(), namespace: namespace.map(Into::into), name: name.into() }
}

pub fn namespace(name: &str) -> Key {
    key("", "Namespace", None, name)
}

/// Returns an object of the manifest.
pub fn desired(key: &Key, body: &serde_json::Value) -> DesiredObject {
    let kind = Kind::from(Served {
        group: key.group.to_string(),
        version: "v1".into(),
        kind: key.kind.to_string(),
        plural: format!("{}s", key.kind.to_lowercase()),
        namespaced: key.namespace.is_some(),
    });
    DesiredObject {
        kind,
        key: key.clone(),
        body: Body::new(body),
        digest: Checksum::of(b""),
        wave: Wave::Number(0),
        rank: Rank::Workload,
        defines: None,
        binds: None,
        replace: false,
        hook: None,
    }
}

/// A request that has failed since a second, and is made again at another one.
pub fn failed(class: FailureClass, since: i64, retry_at: i64) -> RetryState {
    let failure = Failure::new(class, Reason::ApiServerUnreachable);
    let (since, retry_at) = (second(since), second(retry_at));
    RetryState { failure, of: FailedStep::Apply, attempts: 1, since, retry_at }
}

/// A stack with one workload that was applied at second 0, and what the agent knows about it.
pub struct Stack {
    pub key: Key,
    pub goal: Goal,
    pub record: Record,
    pub progress: Progress,
    pub suspensions: Suspensions,
    pub wave_clock: WaveClock,
    pub objects: HashMap<Key, SeenObject>,
    pub completed: HashMap<Key, Uid>,
    /// No object can be observed.
    pub unwatched: bool,
    /// Objects of other stacks of this agent need these.
    pub needed_elsewhere: HashSet<Key>,
}

impl Observed for Stack {
    fn seen(&self, key: &Key) -> Option<&SeenObject> {
        self.objects.get(key)
    }

    fn synced(&self, _: &Key) -> bool {
        !self.unwatched
    }

    fn completed(&self, key: &Key) -> Option<&Uid> {
        self.completed.get(key)
    }
}

impl OtherStacks for Stack {
    fn holder(&self, _: &Key) -> Option<Holder> {
        None
    }

    fn successor(&self, _: &Key) -> Option<String> {
        None
    }

    fn is_prerequisite_of_another_stack(&self, key: &Key) -> bool {
        self.needed_elsewhere.contains(key)
    }

    fn has_pending_content(&self) -> bool {
        false
    }
}

impl Stack {
    pub fn of(group: &str, kind: &str) -> Self {
        let checksum = Checksum::of(b"");
        let target = TargetStack {
            project: "default".into(),
            stack_id: STACK,
            stack_name: "web".into(),
            sequence_id: SEQUENCE,
            checksum,
            parsed_digest: checksum,
            removal: None,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            grant: None,
            approvals: Vec::new(),
            published_at: second(0),
            targeted_at: second(0),
            released_at: second(0),
        };
        let content = Content {
            sequence: SEQUENCE,
            checksum,
            objects: BTreeMap::new(),
            dormant: BTreeMap::new(),
            left_out: Vec::new(),
            definitions: HashMap::new(),
            fetched: second(0),
            verified: second(0),
        };
        let outcome = Outcome {
            transition: Transition::Applied,
            sequence: SEQUENCE,
            reason: Reason::None,
            message: Message::default(),
        };
        let record = Record {
            applied: Some(SEQUENCE),
            checksum: Some(checksum),
            stamp: SEQUENCE,
            outcome: Some(outcome),
            version: Some("1".into()),
            ..Record::new(&target, SESSION - 1)
        };
        let mut stack = Self {
            key: key(group, kind, Some("shop"), "web"),
            goal: Goal { target, content: Some(Arc::new(content)), fallback: None },
            record,
            progress: Progress::default(),
            suspensions: Suspensions::default(),
            wave_clock: WaveClock::default(),
            objects: HashMap::new(),
            completed: HashMap::new(),
            unwatched: false,
            needed_elsewhere: HashSet::new(),
        };
        stack.add(&stack.key.clone());
        stack
    }

    pub fn deployment() -> Self {
        Self::of("apps", "Deployment")
    }

    pub fn content(&self) -> Arc<Content> {
        self.goal.content.clone().unwrap()
    }

    /// Changes the content of the target.
    pub fn content_mut(&mut self) -> &mut Content {
        Arc::make_mut(self.goal.content.as_mut().unwrap())
    }

    /// Adds an object to the content, and to the record as applied.
    pub fn add(&mut self, key: &Key) {
        let desired = desired(key, &serde_json::json!({}));
        let entry = Entry {
            wave: 0,
            kind: desired.kind.clone(),
            origin: Origin::Created,
            uid: Some(Uid::from("uid")),
            digest: Some(desired.digest),
            fields: None,
            completed: false,
        };
        self.record.inventory_mut().insert(key.clone(), entry);
        self.record.total += 1;
        self.content_mut().objects.insert(key.clone(), Arc::new(desired));
    }

    /// Returns an object of this stack as the agent sees it.
    pub fn seen_as(state: HealthState) -> SeenObject {
        let health = Health { state, reason: Reason::NotReady, message: Message::default() };
        let (agent, stack) = (Some(AGENT.into()), Some(STACK.into()));
        SeenObject { agent, stack, health: Arc::new(health), ..seen("uid", 1) }
    }

    /// The first object is in this state from now on.
    pub fn is(&mut self, state: HealthState, at: i64) {
        self.objects.insert(self.key.clone(), Self::seen_as(state));
        let readiness = &mut self.progress.readiness;
        let is_ready = state == HealthState::Ready;
        readiness.ready_since = is_ready.then(|| second(at));
        readiness.unready_since = (!is_ready).then(|| second(at));
    }

    /// The first object was repaired so often.
    pub fn was_repaired(&mut self, rounds: u32, last: i64) {
        self.progress.repairs.fights.insert(self.key.clone(), Fight { rounds, last: second(last) });
    }

    pub fn situation(&self, now: i64, stable_after: i64) -> Situation<'_> {
        static NONE: LazyLock<HashSet<Key>> = LazyLock::new(HashSet::new);
        Situation {
            agent: AGENT,
            home: "brokkr-system",
            session: SESSION,
            goal: &self.goal,
            record: Some(&self.record),
            held: true,
            progress: &self.progress,
            observed: self,
            other_stacks: self,
            suspensions: &self.suspensions,
            wave_clock: &self.wave_clock,
            busy: &NONE,
            stable_after: SignedDuration::from_secs(stable_after),
            now: second(now),
        }
    }
}
