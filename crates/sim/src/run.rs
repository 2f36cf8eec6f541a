//! One run of the agent: what the process knows, and loses when it dies.
//!
//! The state is the agent's own, with everything that is decided on it. Here is only what surrounds it in a
//! process: requests under way, answers on their way back, watches that lag, reports that wait.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use brokkr_agent::model::{Observed as _, Plan, Prerequisite, Record, SeenObject, Step, StepResult};
use brokkr_agent::observe::Change;
use brokkr_agent::reconcile::stack::AgentContext;
use brokkr_agent::reconcile::state::ReconcilerState;
use brokkr_agent::resource::{Kind, KindName, is_prerequisite};
use brokkr_api::envelope::TargetStack;
use brokkr_api::report::Report;
use brokkr_api::{AgentId, EventId, StackId};
use brokkr_manifest::Key;
use jiff::Timestamp;

/// A request that was decided on and is not carried out yet.
#[derive(Clone, Debug)]
pub struct Request {
    pub stack: StackId,
    pub step: Step,
    pub target: TargetStack,
}

#[derive(Clone)]
pub struct Run {
    pub agent: AgentId,
    pub session: i64,
    pub state: ReconcilerState,
    pub held: BTreeSet<StackId>,
    /// Kinds that discovery has shown once.
    pub known: HashSet<KindName>,
    pub requests: Vec<Request>,
    pub answers: VecDeque<(StackId, Step, StepResult)>,
    pub watches: BTreeMap<KindName, VecDeque<Change>>,
    /// Kinds to be watched from now on.
    pub to_watch: Vec<Kind>,
    pub reports: VecDeque<Report>,
    pub acknowledged: VecDeque<EventId>,
}

impl Run {
    /// Starts with what the cluster holds, and nothing else.
    #[must_use]
    pub fn start(agent: AgentId, session: i64, records: Vec<Record>) -> Self {
        let mut run = Self {
            agent,
            session,
            state: ReconcilerState::default(),
            held: records.iter().map(|record| record.stack).collect(),
            known: HashSet::new(),
            requests: Vec::new(),
            answers: VecDeque::new(),
            watches: BTreeMap::new(),
            to_watch: Vec::new(),
            reports: VecDeque::new(),
            acknowledged: VecDeque::new(),
        };
        for record in records {
            run.to_watch.extend(record.inventory.values().map(|entry| entry.kind.clone()));
            run.reports.extend(record.reports.iter().cloned());
            run.state.resume(record);
        }
        run
    }

    /// The broker's answer.
    pub fn set_targets(&mut self, targets: Vec<TargetStack>) {
        self.state.set_targets(targets, |id| self.held.contains(&id));
    }

    /// Something happened to an object; who waits for a definition or namespace hears of those.
    pub fn on_prerequisite_changed(&mut self, key: &Key, now: Timestamp) {
        if is_prerequisite(key) {
            let namespace = KindName::of(key).is_namespace();
            let prerequisite = if namespace { Prerequisite::Namespace } else { Prerequisite::Definition };
            self.state.on_prerequisite_changed(prerequisite, &key.name, now);
        }
    }

    /// The answer to a request.
    pub fn finish(&mut self, id: StackId, step: &Step, answer: &StepResult, now: Timestamp) {
        let finished = self.state.finish(id, step, answer, now);
        self.reports.extend(finished.reports);
        if finished.dropped {
            self.held.remove(&id);
        }
    }

    /// Plans the next steps of one stack.
    pub fn advance(&mut self, id: StackId, now: Timestamp) -> Option<Plan> {
        let context =
            AgentContext { agent: self.agent, session: self.session, held: self.held.contains(&id) };
        let decided = self.state.advance(id, context, now)?;
        self.to_watch.extend(decided.plan.iter().flat_map(|plan| plan.watch.iter().cloned()));
        let target = decided.target?;
        let request = |step| Request { stack: id, step, target: target.clone() };
        self.requests.extend(decided.steps.into_iter().map(request));
        decided.plan
    }

    /// The object as this run knows it.
    #[must_use]
    pub fn knows(&self, stack: StackId, key: &Key) -> Option<&SeenObject> {
        let looked = || self.state.stacks.get(&stack)?.progress.lookups.objects.get(key)?.as_ref();
        self.state.index.seen(key).or_else(looked)
    }
}
