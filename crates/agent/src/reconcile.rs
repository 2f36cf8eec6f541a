//! The reconciler: one task that owns the index and every stack's state, and decides.
//!
//! It takes news of the broker, changes seen by the watches, and answers to its own requests; for
//! each stack concerned it asks the plan what to do now, and has the worker carry that out. Nothing
//! here waits for a request, so one stack never holds up another (D5).

pub mod claims;
mod seeing;
pub mod stack;
mod sweeps;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::{EventId, StackId};
use brokkr_api::report::Report;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::inventory::wire;
use crate::link::poll::News;
use crate::observe::{Change, Index, Watches};
use crate::plan::steps::{Answer, Ground, Step};
use crate::plan::types::{Goal, Record, Uid};
use crate::seeded::{Bug, has};
use claims::{Around, Claims};
use stack::{StackState, Surroundings};
pub use sweeps::Sweeps;
pub use worker::Worker;

/// Changes that are taken in before decisions are made on them.
const BATCH: usize = 256;

pub struct Reconciler {
    worker: Worker,
    watches: Watches,
    index: Index,
    stacks: BTreeMap<StackId, StackState>,
    claims: Claims,
    /// Stacks whose newest content is on its way.
    unread: BTreeSet<StackId>,
    /// Nothing is written before the broker said that this agent is ACTIVE.
    active: bool,
    stood_down: bool,
    dirty: BTreeSet<StackId>,
    /// Stacks that wait for a definition or namespace to come.
    parked: BTreeMap<Ground, BTreeSet<StackId>>,
    sweeps: Sweeps,
    /// What carries our marks and is in no record, and was told.
    strays: HashSet<Uid>,
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
        sweeps: Sweeps,
        answers: mpsc::UnboundedSender<Done>,
        reports: mpsc::UnboundedSender<Vec<Report>>,
    ) -> Self {
        let mut reconciler = Self {
            worker,
            watches,
            index: Index::default(),
            stacks: BTreeMap::new(),
            claims: Claims::default(),
            unread: BTreeSet::new(),
            active: false,
            stood_down: false,
            dirty: BTreeSet::new(),
            parked: BTreeMap::new(),
            sweeps,
            strays: HashSet::new(),
            answers,
            reports,
        };
        reconciler.watches.ensure([&wire::kind()]);
        for record in records {
            reconciler.resume(record);
        }
        reconciler
    }

    /// What the last run left: watched at once, reported again, and continued when the broker answers.
    fn resume(&mut self, record: Record) {
        self.watches.ensure(record.inventory.values().map(|entry| &entry.kind));
        self.claims.hold(record.stack, record.inventory.keys());
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
        let next = next.map_or(self.sweeps.next, |next| next.min(self.sweeps.next));
        let wait = next.duration_since(now).min(SignedDuration::from_secs(60));
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
        if self.sweeps.is_due(now) {
            self.sweep();
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::StandDown(_) => self.stood_down = true,
            News::StandUp => self.stood_down = false,
            News::Silence => self.go_on_alone(),
            News::Target(envelope) => self.aim(*envelope),
        }
        let may_write = self.active && !self.stood_down;
        if self.worker.cluster.let_write(may_write) != may_write && may_write {
            self.stacks.values_mut().for_each(StackState::stand_up);
            self.dirty.extend(self.stacks.keys());
        }
    }

    /// A9: the broker cannot be reached at start. What the cluster holds is what should be.
    fn go_on_alone(&mut self) {
        tracing::warn!(
            stacks = self.stacks.len(),
            "the broker is away: keeping and repairing what was applied last"
        );
        self.active = true;
        let all: Vec<StackId> = self.stacks.keys().copied().collect();
        for id in all {
            if let Some(stack) = self.stacks.get_mut(&id) {
                stack.aim_as_recorded();
            }
            self.note_wishes(id);
            self.dirty.insert(id);
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
        for (id, stack) in &mut self.stacks {
            if !mentioned.contains(id) {
                // E4: absence is never deletion. A removal that was stored is carried on with.
                stack.carry_on_removal();
                if has(Bug::PruneOnEmptyList) {
                    stack.aim_at_removal();
                }
            }
        }
        let all: Vec<StackId> = self.stacks.keys().copied().collect();
        for id in &all {
            self.note_wishes(*id);
        }
        self.dirty.extend(all);
    }

    /// What a stack wants changed, or became known: who waits for that decides anew.
    fn note_wishes(&mut self, id: StackId) {
        let goal = self.stacks.get(&id).and_then(|stack| stack.goal.as_ref());
        match goal {
            Some(goal) if goal.target.removal.is_some() => self.claims.wish_only(id, std::iter::empty()),
            Some(Goal { content: Some(content), .. }) => self.claims.wish_only(id, content.objects.keys()),
            _ => {}
        }
        if self.stacks.get(&id).is_some_and(StackState::is_reading) {
            self.unread.insert(id);
        } else {
            self.unread.remove(&id);
        }
        self.poke_those_who_mind(id);
    }

    fn poke_those_who_mind(&mut self, id: StackId) {
        for (other, stack) in &mut self.stacks {
            if *other != id && stack.minds_others {
                stack.decide_anew();
                self.dirty.insert(*other);
            }
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
        let waited = stack.next.is_some();
        stack.finish(&step, &answer, Timestamp::now());
        let took_up = waited && stack.next.is_none();
        self.dirty.insert(id);
        match (&step, &answer) {
            (Step::WriteRecord(_), Answer::RecordWritten { .. }) => {
                if let Some(record) = &stack.record {
                    if record.inventory.len() < recorded {
                        self.claims.hold_only(id, record.inventory.keys());
                    }
                    if !record.reports.is_empty() {
                        let _ = self.reports.send(record.reports.clone());
                    }
                }
            }
            (Step::DropRecord, Answer::RecordDropped) => self.drop_stack(id),
            (Step::Fetch, _) => self.note_wishes(id),
            // Handed over, or out of the way: the watch will tell nothing new of what this answer told.
            (Step::Apply { .. } | Step::Delete { .. }, _) => self.poke_those_who_mind(id),
            _ => {}
        }
        if took_up {
            self.note_wishes(id);
        }
    }

    fn drop_stack(&mut self, id: StackId) {
        self.claims.forget(id);
        self.unread.remove(&id);
        self.park(id, &BTreeSet::new());
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
        self.note_wishes(id);
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
        // Taken out, so that it can be changed while it looks at its neighbours.
        let Some(mut stack) = self.stacks.remove(&id) else { return };
        let neighbours = Around { me: id, claims: &self.claims, stacks: &self.stacks, unread: &self.unread };
        let around = Surroundings {
            agent: self.worker.agent,
            session: self.worker.session,
            held: self.worker.holds.contains(id),
            index: &self.index,
            neighbours: &neighbours,
        };
        let had_next = stack.next.is_some();
        if let Some(plan) = stack.plan(&around, Timestamp::now()) {
            if let Some(what) = &plan.waiting_for {
                tracing::debug!(stack.id = %id, stage = ?plan.stage, what, "waiting");
            }
            self.watches.ensure(&plan.watch);
        }
        let steps = stack.release();
        let took_up = had_next && stack.next.is_none();
        let target = stack.goal.as_ref().map(|goal| goal.target.clone());
        let parked = stack.parked.clone();
        self.stacks.insert(id, stack);
        self.park(id, &parked);
        if took_up {
            self.note_wishes(id);
        }
        let Some(target) = target else { return };
        if !steps.is_empty() {
            tracing::debug!(stack.id = %id, steps = steps.len(), first = steps[0].name(), "carrying out");
        }
        for step in steps {
            // Claimed as soon as it is decided: a second stack that wants the same is refused, not faster.
            if let Step::WriteRecord(record) = &step {
                self.claims.hold(id, record.inventory.keys());
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
