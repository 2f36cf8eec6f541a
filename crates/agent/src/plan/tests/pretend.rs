//! A pretend cluster and broker: existence, uids, marks, finalizers. Just enough to carry steps out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use brokkr_api::envelope::{Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::report::Report;
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use brokkr_manifest::Key;
use brokkr_manifest::order::Rank;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::health::{Health, HealthState};
use crate::plan::absorb::absorb;
use crate::plan::plan;
use crate::plan::steps::{Answer, Plan, Stage, Step};
use crate::plan::types::{
    Body, Content, Failure, FailureClass, Fingerprint, Goal, Holder, Neighbours, Observed, Progress, Record,
    Seen, Situation, Uid, Wanted, definitions,
};
use crate::resource::{Kind, KindName, Served};

pub struct Pretend {
    pub agent: AgentId,
    pub stack: StackId,
    pub objects: BTreeMap<Key, Seen>,
    pub record: Option<Record>,
    pub held: bool,
    /// What the broker has, by id: a report made again is one report.
    pub events: BTreeMap<EventId, Report>,
    /// Refused by validation.
    pub invalid: BTreeSet<Key>,
    /// The broker cannot be reached: reports stay where they are.
    pub silent: bool,
    pub steps: Vec<String>,
    pub now: Timestamp,
    counter: u64,
}

/// The memory of one run of the agent: lost in a crash.
pub struct Memory {
    pub goal: Goal,
    pub record: Option<Record>,
    pub progress: Progress,
}

pub fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

pub fn kind_of(key: &Key) -> Kind {
    Kind::from(Served {
        group: key.group.clone(),
        version: "v1".into(),
        kind: key.kind.clone(),
        plural: format!("{}s", key.kind.to_lowercase()),
        namespaced: key.namespace.is_some(),
    })
}

/// A target whose content is these resources, each with its value.
pub fn content(sequence: i64, resources: &[(&str, &str)]) -> Arc<Content> {
    let objects: BTreeMap<Key, Arc<Wanted>> = resources
        .iter()
        .map(|(text, value)| {
            let key = key(text);
            let wanted = Wanted {
                kind: kind_of(&key),
                rank: Rank::of(&key.group, &key.kind),
                body: Body::new(&json!({"value": value})),
                defines: None,
                replace: false,
                digest: Checksum::of(value.as_bytes()),
                wave: 0,
                key: key.clone(),
            };
            (key, Arc::new(wanted))
        })
        .collect();
    Arc::new(Content {
        sequence: SequenceId(sequence),
        checksum: Checksum::of(format!("{resources:?}").as_bytes()),
        definitions: definitions(&objects),
        objects,
        fetched: Timestamp::UNIX_EPOCH,
        verified: Timestamp::UNIX_EPOCH,
    })
}

impl Pretend {
    pub fn new() -> Self {
        Self {
            agent: AgentId::generate(),
            stack: StackId::generate(),
            objects: BTreeMap::new(),
            record: None,
            held: false,
            events: BTreeMap::new(),
            invalid: BTreeSet::new(),
            silent: false,
            steps: Vec::new(),
            now: Timestamp::from_second(1_800_000_000).expect("a time"),
            counter: 0,
        }
    }

    pub fn target(&self, sequence: i64, removal: Option<Removal>) -> TargetStack {
        TargetStack {
            project: "default".into(),
            stack_id: self.stack,
            stack_name: "web".into(),
            sequence_id: SequenceId(sequence),
            checksum: Checksum::of(b""),
            parsed_digest: Checksum::of(b""),
            removal,
            grant: None,
            approvals: Vec::new(),
            published_at: Timestamp::UNIX_EPOCH,
            targeted_at: Timestamp::UNIX_EPOCH,
            released_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// A new run of the agent, which knows only what the cluster holds.
    pub fn start(&self, goal: Goal) -> Memory {
        Memory { goal, record: self.record.clone(), progress: Progress::default() }
    }

    pub fn have(&self, content: &Arc<Content>) -> Goal {
        Goal { target: self.target(content.sequence.0, None), content: Some(content.clone()), fallback: None }
    }

    pub fn remove(&self, sequence: i64, removal: Removal) -> Goal {
        Goal { target: self.target(sequence, Some(removal)), content: None, fallback: None }
    }

    /// Somebody else's object.
    pub fn put_foreign(&mut self, text: &str) -> Key {
        let key = key(text);
        let seen = self.object(None, None, "foreign");
        self.objects.insert(key.clone(), seen);
        key
    }

    fn object(&mut self, marks: Option<(AgentId, StackId)>, uid: Option<Uid>, value: &str) -> Seen {
        self.counter += 1;
        Seen {
            uid: uid.unwrap_or_else(|| Uid::from(format!("uid-{}", self.counter))),
            version: self.counter,
            agent: marks.map(|(agent, _)| agent.into()),
            stack: marks.map(|(_, stack)| stack.into()),
            names_itself: marks.is_some(),
            keep: false,
            has_owner: false,
            deleting: false,
            finalizers: Vec::new(),
            fields: marks.map(|_| Fingerprint::of(value)),
            health: Health { state: HealthState::Ready, reason: String::new(), message: String::new() }
                .into(),
            later: None,
            writer: None,
        }
    }

    /// One plan of this run.
    pub fn plan(&self, memory: &Memory) -> Plan {
        plan(&Situation {
            agent: self.agent,
            session: 1,
            goal: &memory.goal,
            record: memory.record.as_ref(),
            held: self.held,
            progress: &memory.progress,
            observed: self,
            neighbours: &Alone,
            busy: &HashSet::new(),
            now: self.now,
        })
    }

    /// Plans and carries out until nothing is left to do; at most `steps` requests, then it "crashes".
    /// Answers how many requests were made, and where it stands.
    pub fn run(&mut self, memory: &mut Memory, steps: usize) -> (usize, Stage) {
        let mut made = 0;
        for _ in 0..500 {
            self.now += SignedDuration::from_millis(10);
            let plan = self.plan(memory);
            if plan.steps.is_empty() || plan.stage == Stage::Stopped && made > 400 {
                return (made, plan.stage);
            }
            for step in plan.steps {
                if made == steps {
                    return (made, plan.stage);
                }
                made += 1;
                self.take(memory, &step);
            }
            if matches!(plan.stage, Stage::Done) && memory.record.is_none() {
                return (made, Stage::Done);
            }
        }
        panic!("never settles: {:?}", &self.steps[self.steps.len().saturating_sub(12)..]);
    }

    /// Carries one step out, and takes its answer in.
    pub fn take(&mut self, memory: &mut Memory, step: &Step) {
        let answer = self.carry_out(step);
        if matches!(answer, Answer::ContentsForgotten) {
            memory.goal.fallback = None;
        }
        absorb(&mut memory.progress, &mut memory.record, step, &answer, self.now);
        self.acknowledge(memory);
    }

    pub fn hear_again(&mut self, memory: &mut Memory) {
        self.silent = false;
        self.acknowledge(memory);
    }

    fn acknowledge(&mut self, memory: &mut Memory) {
        if let Some(record) = memory.record.as_mut().filter(|_| !self.silent) {
            for report in record.reports.drain(..) {
                self.events.insert(report.id, report);
            }
        }
    }

    fn carry_out(&mut self, step: &Step) -> Answer {
        self.steps.push(match step.key() {
            Some(key) => format!("{} {key}", step.name()),
            None => step.name().to_owned(),
        });
        match step {
            Step::Hold => {
                self.held = true;
                Answer::Held
            }
            Step::Fetch => panic!("the content is given"),
            Step::WriteRecord(record) => {
                self.counter += 1;
                let version = self.counter.to_string();
                self.record = Some(Record { version: Some(version.clone()), ..(**record).clone() });
                Answer::RecordWritten { version }
            }
            Step::DropRecord => {
                self.record = None;
                Answer::RecordDropped
            }
            Step::ForgetContents { .. } => Answer::ContentsForgotten,
            Step::Look { key, .. } => Answer::Looked(self.objects.get(key).cloned()),
            Step::LookInside { key, .. } => Answer::Inside(
                self.objects
                    .iter()
                    .filter(|(inner, _)| inner.namespace.as_deref() == Some(&key.name))
                    .map(|(inner, _)| inner.for_people().to_string())
                    .collect(),
            ),
            Step::DryRun { wanted, .. } if self.invalid.contains(&wanted.key) => Answer::Failed(Failure {
                class: FailureClass::Permanent,
                reason: "Invalid".into(),
                message: "spec: no good".into(),
                retry_after: None,
            }),
            Step::DryRun { wanted, .. } => Answer::Valid { exists: self.objects.contains_key(&wanted.key) },
            Step::Resolve { .. } => Answer::Resolved,
            Step::CheckRights { .. } => Answer::RightsChecked(Vec::new()),
            Step::Contend { .. } => Answer::Contended(Vec::new()),
            Step::Diagnose { .. } => Answer::Diagnosed(None),
            Step::Apply { wanted, uid, .. } => self.apply(wanted, uid.as_ref()),
            Step::Delete { key, uid, .. } => self.delete(key, uid),
            Step::Release { key, uid, .. } => {
                if let Some(seen) = self.objects.get_mut(key).filter(|seen| seen.uid == *uid) {
                    (seen.agent, seen.stack, seen.names_itself) = (None, None, false);
                }
                Answer::Released
            }
        }
    }

    fn apply(&mut self, wanted: &Wanted, uid: Option<&Uid>) -> Answer {
        // Superset before write: whatever is written must be found again after a crash.
        let recorded = self.record.as_ref().is_some_and(|record| record.inventory.contains_key(&wanted.key));
        assert!(recorded, "{} was written before it was recorded", wanted.key);
        let existing = self.objects.get(&wanted.key).map(|seen| seen.uid.clone());
        if uid.is_some() && uid != existing.as_ref() {
            let failure = Failure {
                class: FailureClass::Conflict,
                reason: "Conflict".into(),
                message: String::new(),
                retry_after: None,
            };
            return Answer::Failed(failure);
        }
        let created = existing.is_none();
        let marks = Some((self.agent, self.stack));
        let value = wanted.digest.to_string();
        let seen = self.object(marks, existing, &value);
        self.objects.insert(wanted.key.clone(), seen.clone());
        Answer::Applied { seen, created }
    }

    fn delete(&mut self, key: &Key, uid: &Uid) -> Answer {
        let Some(seen) = self.objects.get_mut(key) else { return Answer::Gone };
        assert_eq!(seen.uid, *uid, "deletes carry the uid that was seen");
        assert_eq!(seen.agent, Some(self.agent.into()), "C5: {key} is not ours");
        if seen.finalizers.is_empty() {
            self.objects.remove(key);
        } else {
            seen.deleting = true;
        }
        Answer::DeleteAccepted
    }

    pub fn transitions(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for report in self.events.values() {
            *counts.entry(format!("{} {}", report.sequence_id, report.transition)).or_default() += 1;
        }
        counts
    }
}

/// The only stack of its agent.
struct Alone;

impl Neighbours for Alone {
    fn holder(&self, _: &Key) -> Option<Holder> {
        None
    }
    fn heir(&self, _: &Key) -> Option<String> {
        None
    }
    fn unread(&self) -> bool {
        false
    }
}

impl Observed for Pretend {
    fn seen(&self, key: &Key) -> Option<&Seen> {
        self.objects.get(key).filter(|seen| seen.agent == Some(self.agent.into()))
    }

    fn synced(&self, _: &KindName) -> bool {
        true
    }
}
