//! The board: every stack's state beside each other, what is seen, and who has to decide anew.
//!
//! What the reconciler knows, without its tasks, channels and clock. So the simulator plays this very code, and
//! what a crash loses is exactly this.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::{AgentId, EventId, StackId};
use brokkr_api::report::Report;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::claims::{Around, Claims};
use super::stack::{StackState, Surroundings};
use crate::inventory::wire;
use crate::observe::index::Stray;
use crate::observe::{Change, Index};
use crate::plan::steps::{Answer, Ground, Plan, Step};
use crate::plan::types::{Goal, Observed as _, Record};
use crate::resource::KindName;

#[derive(Clone, Default)]
pub struct Board {
    pub index: Index,
    pub stacks: BTreeMap<StackId, StackState>,
    claims: Claims,
    /// Stacks whose newest content is on its way.
    unread: BTreeSet<StackId>,
    dirty: BTreeSet<StackId>,
}

/// Who asks: what a plan needs to know of the agent itself.
#[derive(Clone, Copy)]
pub struct Whoami {
    pub agent: AgentId,
    pub session: i64,
    /// Whether the broker knows that the stack in question is held.
    pub held: bool,
}

/// What was decided for one stack.
pub struct Decided {
    /// None if something is under way that has to be answered first.
    pub plan: Option<Plan>,
    /// To be carried out now.
    pub steps: Vec<Step>,
    /// What they are for; none without a goal.
    pub target: Option<TargetStack>,
    /// What has to stir before it can go on.
    pub parked: BTreeSet<Ground>,
}

/// What an answer leads to outside the board.
#[derive(Default)]
pub struct Finished {
    /// In the record now, and so to be sent.
    pub reports: Vec<Report>,
    /// The stack is gone, and its record with it.
    pub dropped: bool,
}

impl Board {
    /// What the last run left.
    pub fn resume(&mut self, record: Record) {
        self.claims.hold(record.stack, record.inventory.keys());
        self.stacks.insert(record.stack, StackState::resumed(record));
    }

    /// The stacks that something happened to, since they were last asked for.
    pub fn take_dirty(&mut self) -> BTreeSet<StackId> {
        std::mem::take(&mut self.dirty)
    }

    /// Everything is to be thought over again, though nothing happened.
    pub fn shake(&mut self) {
        self.dirty.extend(self.stacks.keys());
    }

    // ── what the broker says ──

    /// The whole target state, of an agent that is ACTIVE.
    pub fn aim(&mut self, targets: Vec<TargetStack>, held: impl Fn(StackId) -> bool) {
        let mut mentioned = BTreeSet::new();
        for target in targets {
            let id = target.stack_id;
            mentioned.insert(id);
            // Already gone and no longer held: the answer was made before the broker heard of it.
            if target.removal.is_some() && !self.stacks.contains_key(&id) && !held(id) {
                continue;
            }
            self.stacks.entry(id).or_default().aim(target);
        }
        for (id, stack) in &mut self.stacks {
            if !mentioned.contains(id) {
                // E4: absence is never deletion. A removal that was stored is carried on with.
                stack.carry_on_removal();
            }
        }
        self.note_all_wishes();
    }

    /// A9: the broker cannot be reached at start. What the cluster holds is what should be.
    pub fn go_on_alone(&mut self) {
        self.stacks.values_mut().for_each(StackState::aim_as_recorded);
        self.note_all_wishes();
    }

    /// Refusals that were our own are over.
    pub fn stand_up(&mut self) {
        self.stacks.values_mut().for_each(StackState::stand_up);
        self.shake();
    }

    pub fn forget_reports(&mut self, ids: &[EventId]) {
        for (id, stack) in &mut self.stacks {
            let Some(record) = &mut stack.record else { continue };
            let before = record.reports.len();
            record.reports.retain(|report| !ids.contains(&report.id));
            if record.reports.len() != before {
                self.dirty.insert(*id);
            }
        }
    }

    fn note_all_wishes(&mut self) {
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

    // ── what the watches tell ──

    /// Takes a change in. Answers whether something may be there that no record has.
    pub fn see(&mut self, change: Change) -> bool {
        self.mind_record(&change);
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
        let unclaimed = changed.iter().any(|key| {
            self.index.seen(key).is_some_and(|seen| seen.names_itself)
                && self.claims.holders(key).next().is_none()
        });
        for key in changed {
            for id in self.claims.holders(&key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.touched.insert(key.clone());
                    self.dirty.insert(id);
                }
            }
        }
        if listed {
            self.shake();
        }
        listed || unclaimed
    }

    /// E5: a record that somebody deletes is made again, at once.
    fn mind_record(&mut self, change: &Change) {
        let key = match change {
            Change::Present(key, seen) if seen.deleting => key,
            Change::Gone(key, _) => key,
            _ => return,
        };
        if KindName::of(key) != wire::kind().name() {
            return;
        }
        for (id, stack) in &mut self.stacks {
            let name =
                stack.record.as_ref().map(|record| wire::record_name(&record.stack_name, record.stack));
            if name.is_some_and(|name| key.name == name || key.name == wire::other_name(&name)) {
                stack.record_lost = true;
                self.dirty.insert(*id);
            }
        }
    }

    /// Something happened to a definition or namespace: who waits for it tries again.
    pub fn stir(&mut self, ground: Ground, name: &str, now: Timestamp) {
        for (id, stack) in self.stacks.iter_mut().filter(|(_, stack)| stack.parked.contains(&ground)) {
            stack.stir(ground, name, now);
            self.dirty.insert(*id);
        }
    }

    /// What carries our marks and is in no record.
    #[must_use]
    pub fn strays(&self) -> Vec<Stray> {
        self.index.strays(|key| self.claims.holders(key).next().is_some())
    }

    // ── what the clock says ──

    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.stacks.values().filter_map(|stack| stack.wake_at).min()
    }

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

    /// Everything is gone over once more. Answers the kinds that somebody has or wants something of.
    pub fn sweep(&mut self) -> BTreeSet<KindName> {
        self.stacks.values_mut().for_each(StackState::sweep);
        self.shake();
        self.stacks.values().flat_map(StackState::kinds).collect()
    }

    // ── decisions and their answers ──

    /// Asks the plan what to do now for one stack.
    pub fn advance(&mut self, id: StackId, who: Whoami, now: Timestamp) -> Option<Decided> {
        // Taken out, so that it can be changed while it looks at its neighbours.
        let mut stack = self.stacks.remove(&id)?;
        let neighbours = Around { me: id, claims: &self.claims, stacks: &self.stacks, unread: &self.unread };
        let around = Surroundings { who, index: &self.index, neighbours: &neighbours };
        let had_next = stack.next.is_some();
        let plan = stack.plan(&around, now);
        let steps = stack.release();
        let took_up = had_next && stack.next.is_none();
        let target = stack.goal.as_ref().map(|goal| goal.target.clone());
        let parked = stack.parked.clone();
        self.stacks.insert(id, stack);
        if took_up {
            self.note_wishes(id);
        }
        // Claimed as soon as it is decided: a second stack that wants the same is refused, not faster.
        for step in &steps {
            if let Step::WriteRecord(record) = step {
                self.claims.hold(id, record.inventory.keys());
            }
        }
        Some(Decided { plan, steps, target, parked })
    }

    /// Takes the answer to a step in.
    pub fn finish(&mut self, id: StackId, step: &Step, answer: &Answer, now: Timestamp) -> Finished {
        if let (Step::Apply { wanted, .. }, Answer::Applied { seen, .. }) = (step, answer) {
            self.index.put(&wanted.key, seen.clone());
        }
        if let (Step::Delete { key, uid, .. } | Step::Release { key, uid, .. }, Answer::Gone) = (step, answer)
        {
            self.index.absorb(Change::Gone(key.clone(), uid.clone()));
        }
        let mut finished = Finished::default();
        let Some(stack) = self.stacks.get_mut(&id) else { return finished };
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
                    finished.reports.clone_from(&record.reports);
                }
            }
            (Step::DropRecord, Answer::RecordDropped) => {
                self.drop_stack(id);
                finished.dropped = true;
            }
            (Step::Fetch, _) => self.note_wishes(id),
            // Handed over, or out of the way: the watch will tell nothing new of what this answer told.
            (Step::Apply { .. } | Step::Delete { .. }, _) => self.poke_those_who_mind(id),
            _ => {}
        }
        if took_up {
            self.note_wishes(id);
        }
        finished
    }

    fn drop_stack(&mut self, id: StackId) {
        self.claims.forget(id);
        self.unread.remove(&id);
        if let Some(stack) = self.stacks.remove(&id) {
            // Wanted again in the meantime: starts from nothing.
            let wanted = stack.next.or(stack.goal.map(|goal| goal.target));
            if let Some(target) = wanted.filter(|target| target.removal.is_none()) {
                self.stacks.entry(id).or_default().aim(target);
                self.dirty.insert(id);
            }
        }
        self.note_wishes(id);
    }
}
