//! The reconciler: one task that decides, for every stack of this agent.
//!
//! It takes news of the broker, changes seen by the watches, and answers to its own requests, and puts them on its
//! [`Board`]; for each stack concerned it asks what to do now, and has the worker carry that out. Nothing here waits
//! for a request, so one stack never holds up another (D5).

pub mod board;
pub mod claims;
pub mod figures;
pub mod passes;
pub mod stack;
mod sweeps;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::{EventId, StackId};
use brokkr_api::report::Report;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::admin::Asked;
use crate::inventory::wire;
use crate::link::poll::News;
use crate::metrics::Metrics;
use crate::observe::{Change, Watches};
use crate::plan::steps::{Answer, Ground, Step};
use crate::plan::types::{Record, Uid};
use board::{Board, Whoami};
use passes::{Outcome, Passes};
pub use sweeps::Sweeps;
pub use worker::Worker;

/// Changes that are taken in before decisions are made on them.
const BATCH: usize = 256;

pub struct Reconciler {
    worker: Worker,
    watches: Watches,
    board: Board,
    /// Nothing is written before the broker said that this agent is ACTIVE.
    active: bool,
    /// What was said last was taken up.
    aimed: bool,
    /// Why nothing may be written, if so.
    stood_down: Option<&'static str>,
    /// Stacks that wait for a definition or namespace to come.
    parked: BTreeMap<Ground, BTreeSet<StackId>>,
    sweeps: Sweeps,
    /// What carries our marks and is in no record, and was told.
    strays: HashSet<Uid>,
    passes: Passes,
    metrics: Metrics,
    answers: mpsc::UnboundedSender<Done>,
    reports: mpsc::UnboundedSender<Vec<Report>>,
}

/// The channels that end at the reconciler.
pub struct Inbox {
    pub news: mpsc::UnboundedReceiver<News>,
    pub changes: mpsc::Receiver<Change>,
    pub answers: mpsc::UnboundedReceiver<Done>,
    pub acknowledged: mpsc::UnboundedReceiver<Vec<EventId>>,
    pub asked: mpsc::UnboundedReceiver<Asked>,
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
        metrics: Metrics,
        answers: mpsc::UnboundedSender<Done>,
        reports: mpsc::UnboundedSender<Vec<Report>>,
    ) -> Self {
        let mut reconciler = Self {
            worker,
            watches,
            board: Board::default(),
            active: false,
            aimed: false,
            stood_down: None,
            parked: BTreeMap::new(),
            sweeps,
            strays: HashSet::new(),
            passes: Passes::default(),
            metrics,
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
        self.send(record.reports.clone());
        self.board.resume(record);
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
                Some(ids) = inbox.acknowledged.recv() => self.board.forget_reports(&ids),
                Some(asked) = inbox.asked.recv() => {
                    // Whoever asked may have left by now.
                    let _ = asked.send(self.figures());
                }
                () = tokio::time::sleep(pause) => self.wake(),
            }
            for stack in self.board.take_dirty() {
                self.advance(stack);
            }
        }
    }

    fn until_next_wake(&self) -> Duration {
        let now = Timestamp::now();
        let next = self.board.next_wake().map_or(self.sweeps.next, |next| next.min(self.sweeps.next));
        let wait = next.duration_since(now).min(SignedDuration::from_secs(60));
        Duration::try_from(wait).unwrap_or_default()
    }

    fn wake(&mut self) {
        let now = Timestamp::now();
        self.board.wake(now);
        if self.sweeps.is_due(now) {
            self.sweep();
        }
    }

    /// F1: finds what no event told. Lists anew, goes over every object once, and stops watching what nobody has.
    fn sweep(&mut self) {
        let mut kinds = self.board.sweep();
        kinds.insert(wire::kind().name());
        self.watches.retain(&kinds);
        self.watches.relist_all();
    }

    fn hear(&mut self, news: News) {
        match news {
            News::StandDown(why) => self.stood_down = Some(why),
            News::StandUp => self.stood_down = None,
            News::Silence => self.go_on_alone(),
            News::Target(envelope) => self.aim(*envelope),
        }
        let may_write = self.active && self.stood_down.is_none();
        if self.worker.cluster.let_write(may_write) != may_write && may_write {
            self.board.stand_up();
        }
    }

    fn go_on_alone(&mut self) {
        tracing::warn!(
            stacks = self.board.stacks.len(),
            "the broker is away: keeping and repairing what was applied last"
        );
        (self.active, self.aimed) = (true, true);
        self.board.go_on_alone();
    }

    fn aim(&mut self, envelope: Envelope) {
        self.active = envelope.status == AgentStatus::Active;
        self.aimed = true;
        if !self.active {
            tracing::info!("this agent is not ACTIVE: nothing is changed in the cluster");
            return;
        }
        self.board.aim(envelope.stacks, |id| self.worker.holds.contains(id));
    }

    fn see(&mut self, change: Change) {
        if let Change::Stirred(ground, name) = &change {
            tracing::debug!(?ground, name, "stirred");
            self.board.stir(*ground, name, Timestamp::now());
        } else if self.board.see(change) {
            self.tell_strays();
        }
    }

    /// What carries our marks and is in no record is told, and left.
    fn tell_strays(&mut self) {
        for stray in self.board.strays() {
            if !self.strays.insert(stray.uid.clone()) {
                continue;
            }
            tracing::warn!(
                object = %stray.key.for_people(), uid = %stray.uid, stack.id = stray.stack.map(|id| id.to_string()),
                "carries this agent's marks and is in no record: left over from something that went wrong; \
                 delete it by hand, or apply a stack that names it"
            );
        }
    }

    fn finish(&mut self, done: Done) {
        self.metrics.carried_out(&done.step, &done.answer);
        let finished = self.board.finish(done.stack, &done.step, &done.answer, Timestamp::now());
        self.send(finished.reports);
        if finished.dropped {
            tracing::info!(stack.id = %done.stack, "stack removed");
            let ended = self.passes.end(done.stack, Outcome::Removed, Instant::now());
            self.count_pass(ended);
            self.park(done.stack, &BTreeSet::new());
            self.worker.holds.let_go(done.stack);
        }
    }

    fn send(&self, reports: Vec<Report>) {
        if !reports.is_empty() {
            let _ = self.reports.send(reports);
        }
    }

    fn count_pass(&self, ended: Option<(Outcome, Duration)>) {
        if let Some((outcome, took)) = ended {
            self.metrics.reconciled(outcome, took);
        }
    }

    /// Definitions and namespaces are watched only while somebody waits for one.
    fn park(&mut self, id: StackId, on: &BTreeSet<Ground>) {
        for ground in [Ground::Definitions, Ground::Namespaces] {
            let waiting = self.parked.entry(ground).or_default();
            if on.contains(&ground) {
                waiting.insert(id);
                self.watches.park(ground);
            } else if waiting.remove(&id) && waiting.is_empty() {
                self.watches.unpark(ground);
            }
        }
    }

    /// Asks the plan what to do now, and has it done.
    fn advance(&mut self, id: StackId) {
        if !self.active || self.stood_down.is_some() {
            return;
        }
        let who = Whoami {
            agent: self.worker.agent,
            session: self.worker.session,
            held: self.worker.holds.contains(id),
        };
        let Some(decided) = self.board.advance(id, who, Timestamp::now()) else { return };
        if let Some(plan) = &decided.plan {
            let ended = self.passes.note(id, plan.stage, Instant::now());
            self.count_pass(ended);
            if let Some(what) = &plan.waiting_for {
                tracing::debug!(stack.id = %id, stage = ?plan.stage, what, "waiting");
            }
            self.watches.ensure(&plan.watch);
        }
        self.park(id, &decided.parked);
        let Some(target) = decided.target else { return };
        if let Some(first) = decided.steps.first() {
            tracing::debug!(stack.id = %id, steps = decided.steps.len(), first = first.name(), "carrying out");
        }
        for step in decided.steps {
            let (worker, answers) = (self.worker.clone(), self.answers.clone());
            let target = target.clone();
            tokio::spawn(async move {
                let answer = worker.carry_out(&step, &target).await;
                let _ = answers.send(Done { stack: id, step, answer });
            });
        }
    }
}
