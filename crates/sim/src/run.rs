//! One run of the agent: what the process knows, and loses when it dies.
//!
//! The index and the state of each stack are the agent's own. What is written anew here is what its reconciler
//! does around them, without tasks and channels: see `crates/agent/src/reconcile.rs`, method by method.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use brokkr_agent::observe::{Change, Index};
use brokkr_agent::plan::steps::{Answer, Ground, Plan, Step};
use brokkr_agent::plan::types::{Goal, Observed as _, Record, Seen};
use brokkr_agent::reconcile::claims::{Around, Claims};
use brokkr_agent::reconcile::stack::{StackState, Surroundings};
use brokkr_agent::resource::{Kind, KindName, is_ground};
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
    pub index: Index,
    pub stacks: BTreeMap<StackId, StackState>,
    claims: Claims,
    unread: BTreeSet<StackId>,
    pub held: BTreeSet<StackId>,
    /// Kinds that discovery has shown once.
    pub known: HashSet<KindName>,
    dirty: BTreeSet<StackId>,
    pub requests: Vec<Request>,
    pub answers: VecDeque<(StackId, Step, Answer)>,
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
            index: Index::default(),
            stacks: BTreeMap::new(),
            claims: Claims::default(),
            unread: BTreeSet::new(),
            held: records.iter().map(|record| record.stack).collect(),
            known: HashSet::new(),
            dirty: BTreeSet::new(),
            requests: Vec::new(),
            answers: VecDeque::new(),
            watches: BTreeMap::new(),
            to_watch: Vec::new(),
            reports: VecDeque::new(),
            acknowledged: VecDeque::new(),
        };
        for record in records {
            run.to_watch.extend(record.inventory.values().map(|entry| entry.kind.clone()));
            run.claims.hold(record.stack, record.inventory.keys());
            run.reports.extend(record.reports.iter().cloned());
            run.stacks.insert(record.stack, StackState::resumed(record));
        }
        run
    }

    /// The broker's answer.
    pub fn aim(&mut self, targets: Vec<TargetStack>) {
        let mut mentioned = BTreeSet::new();
        for target in targets {
            let id = target.stack_id;
            mentioned.insert(id);
            if target.removal.is_some() && !self.stacks.contains_key(&id) && !self.held.contains(&id) {
                continue;
            }
            self.stacks.entry(id).or_default().aim(target);
        }
        for (id, stack) in &mut self.stacks {
            if !mentioned.contains(id) {
                stack.carry_on_removal();
            }
        }
        let all: Vec<StackId> = self.stacks.keys().copied().collect();
        for id in &all {
            self.note_wishes(*id);
        }
        self.dirty.extend(all);
    }

    fn note_wishes(&mut self, id: StackId) {
        match self.stacks.get(&id).and_then(|stack| stack.goal.as_ref()) {
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

    /// The broker is away at the start: what the cluster holds is what should be.
    pub fn go_on_alone(&mut self) {
        let all: Vec<StackId> = self.stacks.keys().copied().collect();
        for id in all {
            if let Some(stack) = self.stacks.get_mut(&id) {
                stack.aim_as_recorded();
            }
            self.note_wishes(id);
            self.dirty.insert(id);
        }
    }

    /// Everything is gone over once more, though nothing was heard.
    pub fn sweep(&mut self) {
        for (id, stack) in &mut self.stacks {
            stack.sweep();
            self.dirty.insert(*id);
        }
    }

    /// Something happened to a definition or namespace: who waits for one tries again.
    pub fn stir(&mut self, key: &Key, now: Timestamp) {
        let kind = KindName::of(key);
        let ground = if kind.is_namespace() { Ground::Namespaces } else { Ground::Definitions };
        if !is_ground(key) {
            return;
        }
        for (id, stack) in self.stacks.iter_mut().filter(|(_, stack)| stack.parked.contains(&ground)) {
            stack.stir(ground, &key.name, now);
            self.dirty.insert(*id);
        }
    }

    /// News of a watch.
    pub fn see(&mut self, change: Change) {
        let listed = matches!(change, Change::Listed(_) | Change::Unserved(_));
        let touched: Vec<Key> = match &change {
            Change::Present(key, _) | Change::Gone(key, _) => vec![key.clone()],
            _ => Vec::new(),
        };
        let changed = self.index.absorb(change);
        for key in touched.iter().chain(&changed) {
            for id in self.claims.holders(key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.progress.looked.remove(key);
                }
            }
        }
        for key in changed {
            for id in self.claims.holders(&key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.touched.insert(key.clone());
                    self.dirty.insert(id);
                }
            }
        }
        if listed {
            self.dirty.extend(self.stacks.keys());
        }
    }

    /// The answer to a request. Tells whether the stack is gone with it.
    pub fn finish(&mut self, id: StackId, step: &Step, answer: &Answer, now: Timestamp) {
        if let (Step::Apply { wanted, .. }, Answer::Applied { seen, .. }) = (step, answer) {
            self.index.put(&wanted.key, seen.clone());
        }
        if let (Step::Delete { key, uid, .. } | Step::Release { key, uid, .. }, Answer::Gone) = (step, answer)
        {
            self.index.absorb(Change::Gone(key.clone(), uid.clone()));
        }
        let Some(stack) = self.stacks.get_mut(&id) else { return };
        let recorded = stack.record.as_ref().map_or(0, |record| record.inventory.len());
        let waited = stack.next.is_some();
        stack.finish(step, answer, now);
        let took_up = waited && stack.next.is_none();
        self.dirty.insert(id);
        match (step, answer) {
            (Step::WriteRecord(_), Answer::RecordWritten { .. }) => {
                if let Some(record) = &stack.record {
                    if record.inventory.len() < recorded {
                        self.claims.hold_only(id, record.inventory.keys());
                    }
                    self.reports.extend(record.reports.iter().cloned());
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
        self.held.remove(&id);
        if let Some(stack) = self.stacks.remove(&id) {
            let wanted = stack.next.or(stack.goal.map(|goal| goal.target));
            if let Some(target) = wanted.filter(|target| target.removal.is_none()) {
                self.stacks.entry(id).or_default().aim(target);
                self.dirty.insert(id);
            }
        }
        self.note_wishes(id);
    }

    pub fn forget_report(&mut self, report: EventId) {
        for (id, stack) in &mut self.stacks {
            let Some(record) = &mut stack.record else { continue };
            let before = record.reports.len();
            record.reports.retain(|kept| kept.id != report);
            if record.reports.len() != before {
                self.dirty.insert(*id);
            }
        }
    }

    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.stacks.values().filter_map(|stack| stack.wake_at).min()
    }

    /// What is due by the clock.
    pub fn wake(&mut self, now: Timestamp) {
        for (id, stack) in &mut self.stacks {
            if stack.wake_at.is_some_and(|at| at <= now) {
                stack.wake_at = None;
                stack.look_again();
                stack.begin_next_cycle(now);
                self.dirty.insert(*id);
            }
        }
    }

    /// Everything is to be thought over again, though nothing happened.
    pub fn shake(&mut self) {
        self.dirty.extend(self.stacks.keys());
    }

    /// The stacks that something happened to.
    pub fn take_dirty(&mut self) -> BTreeSet<StackId> {
        std::mem::take(&mut self.dirty)
    }

    /// Asks the plan what to do now for one stack. This is where the plan's situation is made.
    pub fn advance(&mut self, id: StackId, now: Timestamp) -> Option<Plan> {
        let mut stack = self.stacks.remove(&id)?;
        let neighbours = Around { me: id, claims: &self.claims, stacks: &self.stacks, unread: &self.unread };
        let around = Surroundings {
            agent: self.agent,
            session: self.session,
            held: self.held.contains(&id),
            index: &self.index,
            neighbours: &neighbours,
        };
        let had_next = stack.next.is_some();
        let plan = stack.plan(&around, now);
        self.to_watch.extend(plan.iter().flat_map(|plan| plan.watch.iter().cloned()));
        let steps = stack.release();
        let took_up = had_next && stack.next.is_none();
        let target = stack.goal.as_ref().map(|goal| goal.target.clone());
        self.stacks.insert(id, stack);
        if took_up {
            self.note_wishes(id);
        }
        let target = target?;
        for step in steps {
            if let Step::WriteRecord(record) = &step {
                self.claims.hold(id, record.inventory.keys());
            }
            self.requests.push(Request { stack: id, step, target: target.clone() });
        }
        plan
    }

    /// The object as this run knows it.
    #[must_use]
    pub fn knows(&self, stack: StackId, key: &Key) -> Option<&Seen> {
        let looked = || self.stacks.get(&stack)?.progress.looked.get(key)?.as_ref();
        self.index.seen(key).or_else(looked)
    }
}
