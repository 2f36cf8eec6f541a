//! One run of the agent: the state of the process, which is lost when it dies.
//!
//! The reconciler's state is the agent's own code. This module has only what surrounds it in a process: pending requests
//! and answers, lagging watches, waiting reports.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use brokkr_agent::model::{Observed as _, Plan, Prerequisite, Record, SeenObject, Step, StepResult};
use brokkr_agent::observe::Change;
use brokkr_agent::reconcile::stack::AgentContext;
use brokkr_agent::reconcile::state::ReconcilerState;
use brokkr_agent::resource::{Kind, KindName, is_prerequisite};
use brokkr_api::envelope::TargetStack;
use brokkr_api::report::Report;
use brokkr_api::{AgentId, EventId, StackId};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

/// A request that is planned but not carried out yet.
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
    /// The broker knows a newer session, so this run writes nothing.
    pub is_superseded: bool,
    /// No session count of an earlier run was found, so that of this run may be too low.
    pub lacks_stored_state: bool,
    pub state: ReconcilerState,
    pub held: BTreeSet<StackId>,
    /// Kinds that discovery has shown, and when.
    pub known: HashMap<KindName, Timestamp>,
    pub requests: Vec<Request>,
    pub answers: VecDeque<(StackId, Step, StepResult)>,
    pub watches: BTreeMap<KindName, VecDeque<Change>>,
    /// Watched kinds that were not served when their watch began or broke.
    pub unserved: BTreeSet<KindName>,
    /// Kinds to be watched from now on.
    pub to_watch: Vec<Kind>,
    pub reports: VecDeque<Report>,
    pub acknowledged: VecDeque<EventId>,
}

impl Run {
    /// Starts with the records in the cluster, and nothing else.
    #[must_use]
    pub fn start(agent: AgentId, session: i64, records: Vec<Record>) -> Self {
        let mut run = Self {
            agent,
            session,
            is_superseded: false,
            lacks_stored_state: false,
            state: ReconcilerState::default(),
            held: records.iter().map(|record| record.stack).collect(),
            known: HashMap::new(),
            requests: Vec::new(),
            answers: VecDeque::new(),
            watches: BTreeMap::new(),
            unserved: BTreeSet::new(),
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

    /// Processes the broker's answer to a poll.
    pub fn set_targets(&mut self, targets: Vec<TargetStack>, now: Timestamp) {
        self.state.set_targets(targets, |id| self.held.contains(&id), now);
    }

    /// Wakes the stacks that wait for this object, if it is a definition or a namespace.
    pub fn on_prerequisite_changed(&mut self, key: &Key, now: Timestamp) {
        if is_prerequisite(key) {
            let namespace = KindName::of(key).is_namespace();
            let prerequisite = if namespace { Prerequisite::Namespace } else { Prerequisite::Definition };
            self.state.on_prerequisite_changed(prerequisite, &key.name, now);
        }
    }

    /// Processes the answer to a request.
    pub fn finish(&mut self, id: StackId, step: &Step, answer: &StepResult, now: Timestamp) {
        let finished = self.state.finish(id, step, answer, now);
        self.reports.extend(finished.reports);
        if finished.dropped {
            self.held.remove(&id);
        }
    }

    /// Plans the next steps of one stack.
    pub fn advance(&mut self, id: StackId, now: Timestamp) -> Option<Plan> {
        let context = AgentContext {
            agent: self.agent,
            home: "brokkr-system",
            session: self.session,
            held: self.held.contains(&id),
            // Simulated objects are ready at once and stay so.
            stable_after: SignedDuration::ZERO,
        };
        let decided = self.state.advance(id, context, now)?;
        self.to_watch
            .extend(decided.plan.iter().flat_map(|plan| plan.watch.iter().map(|watch| watch.kind.clone())));
        self.reports.extend(decided.reports);
        let target = decided.target?;
        let request = |step| Request { stack: id, step, target: target.clone() };
        self.requests.extend(decided.steps.into_iter().map(request));
        decided.plan
    }

    /// Returns the object as this run knows it.
    #[must_use]
    pub fn knows(&self, stack: StackId, key: &Key) -> Option<&SeenObject> {
        let looked = || self.state.stacks.get(&stack)?.progress.lookups.objects.get(key)?.as_ref();
        // A list may be out of date.
        self.state.index.seen(key).into_iter().chain(looked()).max_by_key(|seen| seen.version)
    }
}
