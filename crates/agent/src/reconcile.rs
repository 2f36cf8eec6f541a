//! The reconciler: one task that owns the index and every stack's state, and decides.
//!
//! It takes news of the broker, changes seen by the watches, and answers to its own requests; for
//! each stack concerned it asks the plan what to do now, and has the worker carry that out. Nothing
//! here waits for a request, so one stack never holds up another (D5).

mod stack;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::{EventId, StackId};
use brokkr_api::report::Report;
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::link::poll::News;
use crate::observe::{Change, Index, Watches};
use crate::plan::steps::{Answer, Stage, Step};
use crate::plan::types::Record;
use stack::{StackState, Surroundings};
pub use worker::Worker;

/// Changes that are taken in before decisions are made on them.
const BATCH: usize = 256;

pub struct Reconciler {
    worker: Worker,
    watches: Watches,
    index: Index,
    stacks: BTreeMap<StackId, StackState>,
    /// Which stack a resource belongs to, for every inventory.
    owners: HashMap<Key, StackId>,
    /// Stacks that are being removed.
    leaving: HashSet<StackId>,
    /// Nothing is written before the broker said that this agent is ACTIVE.
    active: bool,
    stood_down: bool,
    dirty: BTreeSet<StackId>,
    answers: mpsc::UnboundedSender<Done>,
    reports: mpsc::UnboundedSender<Vec<Report>>,
}

/// The channels that end at the reconciler.
pub struct Inbox {
    pub news: mpsc::UnboundedReceiver<News>,
    pub changes: mpsc::Receiver<Change>,
    pub answers: mpsc::UnboundedReceiver<Done>,
    pub acknowledged: mpsc::UnboundedReceiver<Vec<EventId>>,
}

/// A step that was carried out.
pub struct Done {
    stack: StackId,
    step: Step,
    answer: Answer,
}

impl Reconciler {
    #[must_use]
    pub fn new(
        worker: Worker,
        watches: Watches,
        records: Vec<Record>,
        answers: mpsc::UnboundedSender<Done>,
        reports: mpsc::UnboundedSender<Vec<Report>>,
    ) -> Self {
        let mut reconciler = Self {
            worker,
            watches,
            index: Index::default(),
            stacks: BTreeMap::new(),
            owners: HashMap::new(),
            leaving: HashSet::new(),
            active: false,
            stood_down: false,
            dirty: BTreeSet::new(),
            answers,
            reports,
        };
        for record in records {
            reconciler.resume(record);
        }
        reconciler
    }

    /// What the last run left: watched at once, reported again, and continued when the broker answers.
    fn resume(&mut self, record: Record) {
        self.watches.ensure(record.inventory.values().map(|entry| &entry.kind));
        for key in record.inventory.keys() {
            self.owners.insert(key.clone(), record.stack);
        }
        if !record.reports.is_empty() {
            let _ = self.reports.send(record.reports.clone());
        }
        self.stacks.insert(record.stack, StackState::resumed(record));
    }

    pub async fn run(mut self, mut inbox: Inbox) {
        loop {
            let pause = self.until_next_wake();
            tokio::select! {
                news = inbox.news.recv() => match news {
                    Some(news) => self.hear(news),
                    None => return,
                },
                Some(change) = inbox.changes.recv() => {
                    self.see(change);
                    for _ in 0..BATCH {
                        let Ok(change) = inbox.changes.try_recv() else { break };
                        self.see(change);
                    }
                }
                Some(done) = inbox.answers.recv() => {
                    self.finish(done);
                    while let Ok(done) = inbox.answers.try_recv() {
                        self.finish(done);
                    }
                }
                Some(ids) = inbox.acknowledged.recv() => self.forget_reports(&ids),
                () = tokio::time::sleep(pause) => self.wake(),
            }
            for stack in std::mem::take(&mut self.dirty) {
                self.advance(stack);
            }
        }
    }

    fn until_next_wake(&self) -> Duration {
        let now = Timestamp::now();
        let next = self.stacks.values().filter_map(|stack| stack.wake_at).min();
        let wait = next.map_or(SignedDuration::from_secs(60), |next| next.duration_since(now));
        Duration::try_from(wait).unwrap_or_default()
    }

    fn wake(&mut self) {
        let now = Timestamp::now();
        for (id, stack) in &mut self.stacks {
            if stack.wake_at.is_some_and(|at| at <= now) {
                stack.wake_at = None;
                stack.look_again();
                stack.begin_next_cycle(now);
                self.dirty.insert(*id);
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::StandDown(_) => self.stood_down = true,
            News::StandUp => self.stood_down = false,
            News::Target(envelope) => self.aim(*envelope),
        }
        let may_write = self.active && !self.stood_down;
        if self.worker.cluster.let_write(may_write) != may_write && may_write {
            self.stacks.values_mut().for_each(StackState::stand_up);
            self.dirty.extend(self.stacks.keys());
        }
    }

    fn aim(&mut self, envelope: Envelope) {
        self.active = envelope.status == AgentStatus::Active;
        if !self.active {
            tracing::info!("this agent is not ACTIVE: nothing is changed in the cluster");
            return;
        }
        let mut mentioned = BTreeSet::new();
        for target in envelope.stacks {
            let id = target.stack_id;
            mentioned.insert(id);
            // Already gone and no longer held: the answer was made before the broker heard of it.
            if target.removal.is_some() && !self.stacks.contains_key(&id) && !self.worker.holds.contains(id) {
                continue;
            }
            self.stacks.entry(id).or_default().aim(target);
        }
        self.leaving.clear();
        for (id, stack) in &mut self.stacks {
            if !mentioned.contains(id) {
                // E4: absence is never deletion. A removal that was stored is carried on with.
                stack.aim_as_recorded();
            }
            if stack.is_leaving() {
                self.leaving.insert(*id);
            }
        }
        self.dirty.extend(self.stacks.keys());
    }

    fn see(&mut self, change: Change) {
        let listed = matches!(change, Change::Listed(_) | Change::Unserved(_));
        let touched: Vec<Key> = match &change {
            Change::Present(key, _) | Change::Gone(key, _) => vec![key.clone()],
            _ => Vec::new(),
        };
        let changed = self.index.absorb(change);
        for key in touched.iter().chain(&changed) {
            if let Some(stack) = self.owners.get(key).and_then(|id| self.stacks.get_mut(id)) {
                stack.progress.looked.remove(key);
            }
        }
        for key in changed {
            let Some(&id) = self.owners.get(&key) else { continue };
            if let Some(stack) = self.stacks.get_mut(&id) {
                stack.touched.insert(key);
                self.dirty.insert(id);
            }
        }
        if listed {
            self.dirty.extend(self.stacks.keys());
        }
    }

    fn finish(&mut self, done: Done) {
        let Done { stack: id, step, answer } = done;
        if let (Step::Apply { wanted, .. }, Answer::Applied { seen, .. }) = (&step, &answer) {
            self.index.put(&wanted.key, seen.clone());
        }
        if let (Step::Delete { key, uid, .. } | Step::Release { key, uid, .. }, Answer::Gone) =
            (&step, &answer)
        {
            self.index.absorb(Change::Gone(key.clone(), uid.clone()));
        }
        let Some(stack) = self.stacks.get_mut(&id) else { return };
        let recorded = stack.record.as_ref().map_or(0, |record| record.inventory.len());
        stack.finish(&step, &answer, Timestamp::now());
        self.dirty.insert(id);
        match (&step, &answer) {
            (Step::WriteRecord(_), Answer::RecordWritten { .. }) => {
                if let Some(record) = &stack.record {
                    if record.inventory.len() < recorded {
                        self.owners.retain(|key, owner| *owner != id || record.inventory.contains_key(key));
                    }
                    if !record.reports.is_empty() {
                        let _ = self.reports.send(record.reports.clone());
                    }
                }
            }
            (Step::DropRecord, Answer::RecordDropped) => self.drop_stack(id),
            _ => {}
        }
    }

    fn drop_stack(&mut self, id: StackId) {
        self.owners.retain(|_, owner| *owner != id);
        self.leaving.remove(&id);
        self.worker.holds.let_go(id);
        if let Some(stack) = self.stacks.remove(&id) {
            tracing::info!(stack.id = %id, "stack removed");
            // Wanted again in the meantime: starts from nothing.
            let wanted = stack.next.or(stack.goal.map(|goal| goal.target));
            if let Some(target) = wanted.filter(|target| target.removal.is_none()) {
                self.stacks.entry(id).or_default().aim(target);
                self.dirty.insert(id);
            }
        }
    }

    fn forget_reports(&mut self, ids: &[EventId]) {
        for (id, stack) in &mut self.stacks {
            let Some(record) = &mut stack.record else { continue };
            let before = record.reports.len();
            record.reports.retain(|report| !ids.contains(&report.id));
            if record.reports.len() != before {
                self.dirty.insert(*id);
            }
        }
    }

    /// Asks the plan what to do now, and has it done.
    fn advance(&mut self, id: StackId) {
        if !self.active || self.stood_down {
            return;
        }
        let around = Surroundings {
            worker: &self.worker,
            index: &self.index,
            leaving: &self.leaving,
            claims: &self.owners,
        };
        let Some(stack) = self.stacks.get_mut(&id) else { return };
        let Some(plan) = stack.plan(&around, Timestamp::now()) else { return };
        if let Some(what) = &plan.waiting_for {
            tracing::debug!(stack.id = %id, stage = ?plan.stage, what, "waiting");
        }
        if plan.stage != Stage::Steady || !plan.steps.is_empty() {
            tracing::debug!(stack.id = %id, stage = ?plan.stage, steps = plan.steps.len(), "planned");
        }
        self.watches.ensure(&plan.watch);
        let Some(target) = stack.goal.as_ref().map(|goal| goal.target.clone()) else { return };
        for step in plan.steps {
            // Claimed as soon as it is decided: a second stack that wants the same is refused, not faster.
            if let Step::WriteRecord(record) = &step {
                for key in record.inventory.keys() {
                    self.owners.entry(key.clone()).or_insert(id);
                }
            }
            let (worker, answers) = (self.worker.clone(), self.answers.clone());
            let target = target.clone();
            tokio::spawn(async move {
                let answer = worker.carry_out(&step, &target).await;
                let _ = answers.send(Done { stack: id, step, answer });
            });
        }
    }
}
