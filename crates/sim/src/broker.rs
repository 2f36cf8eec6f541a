//! The broker, as far as one agent can see it: targets, contents, holds, and the reports that it acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brokkr_agent::model::{Content, definitions};
use brokkr_api::envelope::{Approval, Grant, Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::JobRef;
use brokkr_api::report::{Report, Transition};
use brokkr_api::stacks::DriftPolicy;
use brokkr_api::suspensions::Suspended;
use brokkr_api::windows::Schedule;
use brokkr_api::{EventId, SequenceId, StackId};
use jiff::Timestamp;

use crate::objects::{Item, objects};

#[derive(Clone, Debug)]
struct Stack {
    name: String,
    /// The newest deployment object, or a deletion marker, which has no content.
    sequence: SequenceId,
    /// The version that the agent gets again if the newest one is withdrawn.
    base: Option<SequenceId>,
    withdrawn: bool,
    /// How long its waves wait for each other, and the Jobs to run again; of the newest version.
    wave_wait_seconds: Option<u32>,
    rerun: Vec<JobRef>,
    schedule: Option<Schedule>,
    suspensions: Vec<Suspended>,
    drift: DriftPolicy,
    deleted: bool,
    targeted: bool,
    grant: Option<Grant>,
    approvals: Vec<Approval>,
}

#[derive(Clone, Debug, Default)]
pub struct Broker {
    stacks: BTreeMap<StackId, Stack>,
    contents: BTreeMap<SequenceId, Arc<Content>>,
    /// Stacks that the agent holds, as far as the broker knows.
    pub held: BTreeSet<StackId>,
    pub reports: BTreeMap<EventId, Report>,
    /// The state of each stack according to its last report.
    pub reported_state: BTreeMap<StackId, Transition>,
    /// Whether the broker is unreachable: it receives nothing and acknowledges nothing.
    pub away: bool,
    /// Whether fetching contents fails, while everything else works.
    pub withholds: bool,
    sequence: i64,
    /// Whether something has changed since the last answer to a poll.
    pub changed: bool,
}

impl Broker {
    pub fn submit(&mut self, stack: StackId, name: &str, items: &[Item], now: Timestamp) -> SequenceId {
        let sequence = self.next(stack, name, false);
        let objects = objects(items);
        let content = Content {
            sequence,
            checksum: Checksum::of(format!("{items:?}").as_bytes()),
            definitions: definitions(&objects),
            objects,
            dormant: BTreeMap::new(),
            left_out: Vec::new(),
            fetched: now,
            verified: now,
        };
        self.contents.insert(sequence, Arc::new(content));
        sequence
    }

    /// Publishes a deletion marker.
    pub fn delete(&mut self, stack: StackId) {
        if let Some(name) =
            self.stacks.get(&stack).filter(|stack| !stack.deleted).map(|stack| stack.name.clone())
        {
            self.next(stack, &name, true);
        }
    }

    fn next(&mut self, stack: StackId, name: &str, deleted: bool) -> SequenceId {
        self.sequence += 1;
        self.changed = true;
        let sequence = SequenceId(self.sequence);
        let entry = self.stacks.entry(stack).or_insert_with(|| Stack {
            name: name.into(),
            sequence,
            base: None,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            drift: DriftPolicy::default(),
            deleted,
            targeted: true,
            grant: None,
            approvals: Vec::new(),
        });
        if entry.sequence != sequence && !std::mem::take(&mut entry.withdrawn) {
            entry.base = Some(entry.sequence);
        }
        (entry.sequence, entry.deleted) = (sequence, deleted);
        entry.rerun.clear();
        sequence
    }

    pub fn target(&mut self, stack: StackId, targeted: bool) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.targeted = targeted;
            self.changed = true;
        }
    }

    /// Stops the rollout of the newest version: the agent gets the version before it again.
    pub fn withdraw(&mut self, stack: StackId) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            (stack.withdrawn, stack.deleted) = (true, false);
            self.changed = true;
        }
    }

    /// Makes the waves of the stack wait for each other, or not.
    pub fn wait_for_waves(&mut self, stack: StackId, seconds: Option<u32>) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.wave_wait_seconds = seconds;
            self.changed = true;
        }
    }

    #[must_use]
    pub fn waits_for_waves(&self, stack: StackId) -> bool {
        self.stacks.get(&stack).is_some_and(|stack| stack.wave_wait_seconds.is_some())
    }

    /// Publishes the newest content again, with Jobs to run again.
    pub fn rerun(&mut self, stack: StackId, jobs: &[&str]) -> Option<SequenceId> {
        let entry = self.stacks.get(&stack)?;
        let (name, content) = (entry.name.clone(), self.contents.get(&entry.sequence)?.clone());
        let sequence = self.next(stack, &name, false);
        self.contents.insert(sequence, Arc::new(Content { sequence, ..(*content).clone() }));
        let jobs = jobs.iter().filter_map(|job| job.split_once('/'));
        let jobs = jobs.map(|(namespace, name)| JobRef { namespace: namespace.into(), name: name.into() });
        self.stacks.get_mut(&stack)?.rerun = jobs.collect();
        Some(sequence)
    }

    /// Changes when the agent may begin versions of the stack.
    pub fn schedule(&mut self, stack: StackId, schedule: Option<Schedule>) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.schedule = schedule;
            self.changed = true;
        }
    }

    /// Sets what the agent does about changes that others make.
    pub fn set_drift(&mut self, stack: StackId, drift: DriftPolicy) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.drift = drift;
            self.changed = true;
        }
    }

    /// Changes what the agent leaves alone.
    pub fn suspend(&mut self, stack: StackId, suspensions: Vec<Suspended>) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.suspensions = suspensions;
            self.changed = true;
        }
    }

    /// Changes what the stack's project may do on the agent; without a grant, everything.
    pub fn grant(&mut self, stack: StackId, grant: Option<Grant>) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            stack.grant = grant;
            self.changed = true;
        }
    }

    #[must_use]
    pub fn grant_of(&self, stack: StackId) -> Option<&Grant> {
        self.stacks.get(&stack)?.grant.as_ref()
    }

    pub fn approve(&mut self, stack: StackId, objects: u32, now: Timestamp) {
        if let Some(stack) = self.stacks.get_mut(&stack) {
            let (sequence_id, approved_by) = (stack.sequence, "ana".into());
            stack.approvals.push(Approval { sequence_id, objects, approved_by, approved_at: now });
            self.changed = true;
        }
    }

    /// Returns whether the stack was deleted; if its name is submitted again, that is another stack.
    #[must_use]
    pub fn is_deleted(&self, stack: StackId) -> bool {
        self.stacks.get(&stack).is_some_and(|stack| stack.deleted)
    }

    #[must_use]
    pub fn content(&self, sequence: SequenceId) -> Option<&Arc<Content>> {
        self.contents.get(&sequence)
    }

    /// Returns the content that the stack should have in this cluster; none if it should not be there.
    #[must_use]
    pub fn desired(&self, stack: StackId) -> Option<&Arc<Content>> {
        let stack = self.stacks.get(&stack).filter(|stack| stack.targeted && !stack.deleted)?;
        self.contents.get(&stack.sequence)
    }

    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.keys().copied()
    }

    /// Returns the target state, derived from the desired stacks and from the stacks that the agent holds.
    #[must_use]
    pub fn envelope(&self) -> Vec<TargetStack> {
        let mut targets: Vec<TargetStack> = self
            .stacks
            .iter()
            .filter_map(|(id, stack)| {
                let removal = match stack {
                    Stack { deleted: true, .. } => Some(Removal::Deleted),
                    Stack { targeted: false, .. } => Some(Removal::Untargeted),
                    _ => None,
                };
                if removal.is_some() && !self.held.contains(id) {
                    return None;
                }
                // A removal goes with the newest version, whether or not it is released.
                let base = stack.base.filter(|_| stack.withdrawn && removal.is_none());
                let withdrawn = stack.withdrawn && removal.is_none() && base.is_none();
                if withdrawn && !self.held.contains(id) {
                    return None;
                }
                let sequence_id = base.unwrap_or(stack.sequence);
                let content = self.contents.get(&sequence_id);
                Some(TargetStack {
                    project: "default".into(),
                    stack_id: *id,
                    stack_name: stack.name.clone(),
                    sequence_id,
                    checksum: content.map_or(Checksum::of(b""), |content| content.checksum),
                    parsed_digest: Checksum::of(b""),
                    removal,
                    withdrawn,
                    wave_wait_seconds: stack.wave_wait_seconds,
                    rerun: if base.is_none() { stack.rerun.clone() } else { Vec::new() },
                    schedule: stack.schedule.clone(),
                    suspensions: stack.suspensions.clone(),
                    health_rules: None,
                    drift: stack.drift,
                    grant: stack.grant.clone(),
                    approvals: stack.approvals.clone(),
                    published_at: Timestamp::UNIX_EPOCH,
                    targeted_at: Timestamp::UNIX_EPOCH,
                    released_at: Timestamp::UNIX_EPOCH,
                })
            })
            .collect();
        targets.sort_by_key(|target| target.sequence_id);
        targets
    }

    /// Stores a report; returns false if it was received before.
    pub fn receive(&mut self, report: Report) -> bool {
        let is_state = report.transition.is_state() && report.transition != Transition::Applied;
        let (id, stack, transition) = (report.id, report.stack_id, report.transition.clone());
        let is_new = self.reports.insert(id, report).is_none();
        if is_new && is_state {
            self.reported_state.insert(stack, transition);
        }
        is_new
    }

    /// Counts the reports of a transition for a sequence id.
    #[must_use]
    pub fn report_count(&self, stack: StackId, sequence: SequenceId, transition: Transition) -> usize {
        let same = |report: &&Report| {
            report.stack_id == stack && report.sequence_id == sequence && report.transition == transition
        };
        self.reports.values().filter(same).count()
    }
}
