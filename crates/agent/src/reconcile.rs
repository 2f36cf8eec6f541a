//! The reconciler: one task that decides for all stacks of this agent.
//!
//! It applies messages of the broker, changes from the watches and results of its own requests to its
//! [`ReconcilerState`], makes a plan for each affected stack, and has the worker execute it. Nothing here waits
//! for a request, so one stack never delays another (D5).

pub mod claims;
pub mod counts;
pub mod passes;
mod retries;
pub mod stack;
pub mod state;
mod sweeps;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Envelope;
use brokkr_api::ids::{EventId, StackId};
use brokkr_api::report::Report;
use jiff::SignedDuration;
use tokio::sync::mpsc;

use crate::admin::Asked;
use crate::broker_link::poll::BrokerMessage;
use crate::clock;
use crate::health_rules::{RuleScope, WantedRules};
use crate::inventory::wire;
use crate::metrics::Metrics;
use crate::model::{Prerequisite, Record, Step, StepResult, Uid};
use crate::observe::{Change, Watches};
use crate::record_events::Reported;
use crate::resource::KindIn;
use counts::Counts;
use passes::{Outcome, Passes};
use stack::AgentContext;
use state::ReconcilerState;
pub use sweeps::Sweeps;
pub use worker::Worker;

/// The maximum number of changes that are applied at once before the next plan.
const BATCH: usize = 256;

pub struct Reconciler {
    worker: Worker,
    watches: Watches,
    state: ReconcilerState,
    /// The broker says that this agent is ACTIVE; or the broker is unreachable, but said so in the last run.
    /// Otherwise nothing is written.
    active: bool,
    /// A target state was received, or the agent continues without one.
    has_target_state: bool,
    /// Why writes are suspended, if they are.
    writes_suspended: Option<&'static str>,
    /// Stacks that wait for a definition or namespace.
    blocked_on: BTreeMap<Prerequisite, BTreeSet<StackId>>,
    sweeps: Sweeps,
    /// Orphaned objects that were logged.
    orphans: HashSet<Uid>,
    passes: Passes,
    metrics: Metrics,
    outbox: Outbox,
}

/// The channels that begin at the reconciler.
pub struct Outbox {
    /// Executed steps with their results.
    pub answers: mpsc::UnboundedSender<Done>,
    pub reports: mpsc::UnboundedSender<Vec<Report>>,
    /// Reports that become events in the cluster, which may be lost.
    pub events: mpsc::Sender<Reported>,
}

/// The channels that end at the reconciler.
pub struct Inbox {
    /// Messages of the broker.
    pub news: mpsc::UnboundedReceiver<BrokerMessage>,
    pub changes: mpsc::Receiver<Change>,
    /// Executed steps with their results.
    pub answers: mpsc::UnboundedReceiver<Done>,
    /// Reports that the broker has accepted or refused.
    pub acknowledged: mpsc::UnboundedReceiver<Vec<EventId>>,
    /// Requests of the admin listener for the current counts.
    pub asked: mpsc::UnboundedReceiver<Asked>,
}

/// An executed step.
pub struct Done {
    stack: StackId,
    step: Step,
    answer: StepResult,
}

impl Reconciler {
    #[must_use]
    pub fn new(
        worker: Worker,
        watches: Watches,
        records: Vec<Record>,
        sweeps: Sweeps,
        metrics: Metrics,
        outbox: Outbox,
    ) -> Self {
        let mut reconciler = Self {
            worker,
            watches,
            state: ReconcilerState::default(),
            active: false,
            has_target_state: false,
            writes_suspended: None,
            blocked_on: BTreeMap::new(),
            sweeps,
            orphans: HashSet::new(),
            passes: Passes::default(),
            metrics,
            outbox,
        };
        reconciler.watches.ensure([KindIn { kind: wire::kind(), namespace: None }]);
        for record in records {
            reconciler.resume(record);
        }
        reconciler
    }

    /// Resumes a stack of the last run: watches its kinds, sends its pending reports again, and continues
    /// when the broker answers.
    fn resume(&mut self, record: Record) {
        self.watch_recorded(&record);
        self.send(record.reports.clone());
        self.state.resume(record);
    }

    /// Watches the objects of a record, also before the content of the stack is known.
    fn watch_recorded(&mut self, record: &Record) {
        self.watches.ensure(record.inventory.iter().map(|(key, entry)| KindIn::of(key, &entry.kind)));
    }

    pub async fn run(mut self, mut inbox: Inbox) {
        loop {
            let pause = self.until_next_wake();
            tokio::select! {
                news = inbox.news.recv() => match news {
                    Some(news) => self.on_broker_message(news),
                    None => return,
                },
                Some(change) = inbox.changes.recv() => {
                    self.on_change(change);
                    for _ in 0..BATCH {
                        let Ok(change) = inbox.changes.try_recv() else { break };
                        self.on_change(change);
                    }
                }
                Some(done) = inbox.answers.recv() => {
                    self.finish(done);
                    while let Ok(done) = inbox.answers.try_recv() {
                        self.finish(done);
                    }
                }
                Some(ids) = inbox.acknowledged.recv() => self.state.forget_reports(&ids),
                Some(asked) = inbox.asked.recv() => {
                    // The request may have timed out.
                    let _ = asked.send(self.counts());
                }
                () = tokio::time::sleep(pause) => self.wake(),
            }
            for stack in self.state.take_dirty() {
                self.advance(stack);
            }
        }
    }

    fn until_next_wake(&self) -> Duration {
        let now = clock::now();
        let next = self.state.next_wake().map_or(self.sweeps.next, |next| next.min(self.sweeps.next));
        let wait = next.duration_since(now).min(SignedDuration::from_secs(60));
        Duration::try_from(wait).unwrap_or_default()
    }

    fn wake(&mut self) {
        let now = clock::now();
        self.state.wake(now);
        if self.sweeps.is_due(now) {
            self.sweep();
        }
    }

    /// F1: finds changes that no event reported. Lists all kinds again, checks every object once, and stops
    /// watches that no stack needs.
    fn sweep(&mut self) {
        let mut kinds = self.state.sweep();
        kinds.insert(KindIn { kind: wire::kind(), namespace: None });
        self.watches.retain(&kinds);
        self.watches.relist_all();
    }

    fn on_broker_message(&mut self, news: BrokerMessage) {
        match news {
            BrokerMessage::StopWriting(why) => self.writes_suspended = Some(why),
            BrokerMessage::ResumeWriting => self.writes_suspended = None,
            BrokerMessage::BrokerUnreachable => self.continue_without_broker(),
            BrokerMessage::Target(envelope) => self.set_targets(*envelope),
        }
        let may_write = self.may_write();
        if self.worker.cluster.allow_writes(may_write) != may_write && may_write {
            self.state.resume_writing();
        }
    }

    fn continue_without_broker(&mut self) {
        tracing::warn!(
            stacks = self.state.stacks.len(),
            "the broker has sent no target state since this agent started; keeping the last applied state"
        );
        (self.active, self.has_target_state) = (true, true);
        self.state.continue_without_broker(clock::now());
    }

    fn set_targets(&mut self, envelope: Envelope) {
        self.active = envelope.status == AgentStatus::Active;
        self.has_target_state = true;
        if !self.active {
            tracing::info!("this agent is not ACTIVE; the cluster is not changed");
            return;
        }
        let named = envelope
            .stacks
            .iter()
            .filter_map(|stack| Some((RuleScope::Stack(stack.stack_id), stack.health_rules?)));
        let of_installation = envelope.health_rules.map(|rules| (RuleScope::Installation, rules));
        let named: BTreeMap<_, _> = named.chain(of_installation).collect();
        let mut unnamed: BTreeSet<StackId> = self.state.stacks.keys().copied().collect();
        for stack in &envelope.stacks {
            unnamed.remove(&stack.stack_id);
        }
        self.worker.cluster.health_rules().want(WantedRules { named, unnamed });
        let holds = &self.worker.holds;
        self.state.set_targets(envelope.stacks, |id| holds.contains(id), clock::now());
    }

    fn on_change(&mut self, change: Change) {
        if let Change::PrerequisiteChanged(prerequisite, name) = &change {
            tracing::debug!(?prerequisite, name, "prerequisite changed");
            self.state.on_prerequisite_changed(*prerequisite, name, clock::now());
        } else if let Change::HealthRules(rules) = &change {
            self.watches.relist_kinds_of(rules);
        } else if self.state.on_change(change) {
            self.report_orphans();
        }
    }

    /// Logs objects with our metadata that are in no record. They are not changed.
    fn report_orphans(&mut self) {
        for orphan in self.state.orphans() {
            if !self.orphans.insert(orphan.uid.clone()) {
                continue;
            }
            tracing::warn!(
                object = %orphan.key.display_name(), uid = %orphan.uid, stack.id = orphan.stack.map(|id| id.to_string()),
                "object has this agent's metadata but is in no record; delete it, or apply a stack that contains it"
            );
        }
    }

    fn finish(&mut self, done: Done) {
        self.metrics.carried_out(&done.step, &done.answer);
        if let StepResult::RecordFound(found) = &done.answer {
            self.watch_recorded(found);
        }
        let finished = self.state.finish(done.stack, &done.step, &done.answer, clock::now());
        self.send(finished.reports);
        if finished.dropped {
            tracing::info!(stack.id = %done.stack, "stack removed");
            let ended = self.passes.end(done.stack, Outcome::Removed, Instant::now());
            self.count_pass(ended);
            self.watch_prerequisite(done.stack, &BTreeSet::new());
            self.worker.holds.forget(done.stack);
        }
    }

    fn send(&self, reports: Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        // An event is a write to the cluster.
        if self.may_write() {
            for report in &reports {
                if let Some(stack) = self.state.stacks.get(&report.stack_id) {
                    // If too many wait, it is dropped.
                    let _ = self.outbox.events.try_send((stack.name(), report.clone()));
                }
            }
        }
        let _ = self.outbox.reports.send(reports);
    }

    fn may_write(&self) -> bool {
        self.active && self.writes_suspended.is_none()
    }

    fn count_pass(&self, ended: Option<(Outcome, Duration)>) {
        if let Some((outcome, took)) = ended {
            self.metrics.reconciled(outcome, took);
        }
    }

    /// Watches definitions and namespaces while a stack waits for one.
    fn watch_prerequisite(&mut self, id: StackId, on: &BTreeSet<Prerequisite>) {
        for prerequisite in [Prerequisite::Definition, Prerequisite::Namespace] {
            let waiting = self.blocked_on.entry(prerequisite).or_default();
            if on.contains(&prerequisite) {
                waiting.insert(id);
                self.watches.watch_prerequisite(prerequisite);
            } else if waiting.remove(&id) && waiting.is_empty() {
                self.watches.unwatch_prerequisite(prerequisite);
            }
        }
    }

    /// Plans the next steps of a stack, and executes them.
    fn advance(&mut self, id: StackId) {
        if !self.may_write() {
            return;
        }
        let context = AgentContext {
            agent: self.worker.agent,
            home: &self.worker.home,
            session: self.worker.session,
            held: self.worker.holds.contains(id),
            stable_after: self.worker.stable_after,
        };
        let Some(decided) = self.state.advance(id, context, clock::now()) else { return };
        self.send(decided.reports);
        if let Some(plan) = &decided.plan {
            let ended = self.passes.note(id, plan.stage, Instant::now());
            self.count_pass(ended);
            if let Some(what) = &plan.waiting_for {
                tracing::debug!(stack.id = %id, stage = ?plan.stage, %what, "waiting");
            }
            self.watches.ensure(plan.watch.iter().cloned());
        }
        self.watch_prerequisite(id, &decided.blocked_on);
        let Some(target) = decided.target else { return };
        if let Some(first) = decided.steps.first() {
            tracing::debug!(stack.id = %id, steps = decided.steps.len(), first = first.name(), "executing steps");
        }
        for step in decided.steps {
            let (worker, answers) = (self.worker.clone(), self.outbox.answers.clone());
            let target = target.clone();
            tokio::spawn(async move {
                let answer = worker.carry_out(&step, &target).await;
                let _ = answers.send(Done { stack: id, step, answer });
            });
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts {
            watches: self.watches.count(),
            unsynced: self.watches.kept().saturating_sub(self.state.index.complete_parts()),
            active: self.active,
            has_target_state: self.has_target_state,
            writes_suspended: self.writes_suspended,
            ..Counts::none()
        };
        for stack in self.state.stacks.values() {
            *counts.stacks.entry(stack.phase()).or_default() += 1;
            counts.uncompared += usize::from(!stack.is_compared());
            let Some(record) = &stack.record else { continue };
            counts.unacknowledged += record.reports.len();
            counts.objects += record.inventory.len();
            for condition in &record.conditions {
                *counts.conditions.entry((condition.kind.clone(), condition.status)).or_default() += 1;
            }
        }
        counts
    }
}
