//! The state of the reconciler: all stacks, the observed objects, and the stacks that need a new plan.
//!
//! It has no tasks, channels or clock, so that the simulator can run this code. A crash loses exactly this
//! state.

use std::collections::{BTreeMap, BTreeSet};

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::{EventId, StackId};
use brokkr_api::report::Report;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::claims::{Claims, OtherStacksView};
use super::stack::{AgentContext, StackState, Surroundings};
use crate::inventory::wire;
use crate::model::{Goal, Observed as _, Plan, Prerequisite, Record, Step, StepResult};
use crate::observe::index::OrphanObject;
use crate::observe::{Change, Index, LastState};
use crate::resource::{KindIn, KindName};

#[derive(Clone, Default)]
pub struct ReconcilerState {
    pub index: Index,
    pub stacks: BTreeMap<StackId, StackState>,
    claims: Claims,
    /// Stacks whose newest content is not fetched yet.
    unread: BTreeSet<StackId>,
    /// Stacks that need a new plan.
    dirty: BTreeSet<StackId>,
}

/// The decision for one stack.
pub struct Decided {
    /// None if running requests have to finish first.
    pub plan: Option<Plan>,
    /// To be executed now.
    pub steps: Vec<Step>,
    /// The target of the steps; none without a goal.
    pub target: Option<TargetStack>,
    /// What has to change before the stack can continue.
    pub blocked_on: BTreeSet<Prerequisite>,
    /// Reports to send that are not in the record, because it cannot be written.
    pub reports: Vec<Report>,
}

/// The effects of a result outside the state.
#[derive(Default)]
pub struct Finished {
    /// Reports that are stored in the record and must be sent.
    pub reports: Vec<Report>,
    /// The stack and its record are gone.
    pub dropped: bool,
}

impl ReconcilerState {
    /// Resumes a stack of the last run.
    pub fn resume(&mut self, record: Record) {
        self.claims.hold(record.stack, record.inventory.keys());
        self.stacks.insert(record.stack, StackState::resumed(record));
    }

    /// Returns the stacks that need a new plan, and clears the set.
    pub fn take_dirty(&mut self) -> BTreeSet<StackId> {
        std::mem::take(&mut self.dirty)
    }

    /// Plans all stacks again.
    pub fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.stacks.keys());
    }

    // ── messages of the broker ──

    /// Applies the whole target state of an ACTIVE agent.
    pub fn set_targets(&mut self, targets: Vec<TargetStack>, held: impl Fn(StackId) -> bool, now: Timestamp) {
        let mut mentioned = BTreeSet::new();
        for target in targets {
            let id = target.stack_id;
            mentioned.insert(id);
            // Already removed and no longer held: the broker did not know this yet when it responded.
            if target.removal.is_some() && !self.stacks.contains_key(&id) && !held(id) {
                continue;
            }
            self.stacks.entry(id).or_default().set_target(target, now);
        }
        for (id, stack) in &mut self.stacks {
            if !mentioned.contains(id) {
                stack.set_no_target(now);
            }
        }
        self.update_all_claims();
        // Their first version was withdrawn before it was begun.
        let empty = self.stacks.iter().filter(|(_, stack)| stack.is_empty()).map(|(id, _)| *id);
        for id in empty.collect::<Vec<_>>() {
            self.drop_stack(id, now);
        }
    }

    /// A9: uses the records as the target state, because the broker has sent none since the start.
    pub fn continue_without_broker(&mut self, now: Timestamp) {
        self.stacks.values_mut().for_each(|stack| stack.set_target_from_record(now));
        self.update_all_claims();
    }

    /// Forgets failures that were due to suspended writes.
    pub fn resume_writing(&mut self) {
        self.stacks.values_mut().for_each(StackState::resume_writing);
        self.mark_all_dirty();
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

    fn update_all_claims(&mut self) {
        let all: Vec<StackId> = self.stacks.keys().copied().collect();
        for id in &all {
            self.update_claims(*id);
        }
        self.dirty.extend(all);
    }

    /// Updates the claims of a stack when its desired objects have changed or become known. Stacks that wait
    /// for this are planned again.
    fn update_claims(&mut self, id: StackId) {
        // A record that could not be written claims nothing.
        if let Some(stack) = self.stacks.get(&id).filter(|stack| stack.is_idle()) {
            self.claims.hold_only(id, stack.record.iter().flat_map(|record| record.inventory.keys()));
        }
        let goal = self.stacks.get(&id).and_then(|stack| stack.goal.as_ref());
        match goal {
            Some(goal) if goal.target.removal.is_some() => self.claims.desire_only(id, std::iter::empty()),
            Some(Goal { content: Some(content), .. }) => self.claims.desire_only(id, content.objects.keys()),
            // Nothing is known about its newest content, or its first version was withdrawn.
            Some(_) | None => self.claims.desire_only(id, std::iter::empty()),
        }
        if self.stacks.get(&id).is_some_and(StackState::is_fetching) {
            self.unread.insert(id);
        } else {
            self.unread.remove(&id);
        }
        self.mark_dependents_dirty(id);
    }

    fn mark_dependents_dirty(&mut self, id: StackId) {
        for (other, stack) in &mut self.stacks {
            if *other != id && stack.depends_on_others {
                stack.restart_if_stopped();
                self.dirty.insert(*other);
            }
        }
    }

    // ── changes from the watches ──

    /// Applies a change. Returns whether there may be orphaned objects.
    pub fn on_change(&mut self, change: Change) -> bool {
        self.on_record_changed(&change);
        let listed = matches!(change, Change::Listed(_) | Change::Unserved(_));
        // J4: a stack with an object of this kind is no longer healthy.
        let is_blind = matches!(change, Change::Unwatchable(..));
        let touched: Vec<Key> = match &change {
            Change::Present(key, _) | Change::Gone(key, ..) => vec![key.clone()],
            _ => Vec::new(),
        };
        let owner = |index: &Index, key: &Key| {
            index.seen(key).map(|seen| (seen.uid.clone(), seen.agent.clone(), seen.stack.clone()))
        };
        let owner_before = touched.first().and_then(|key| owner(&self.index, key));
        let changed = self.index.absorb(change);
        for key in touched.iter().chain(&changed) {
            for id in self.claims.holders(key) {
                if let Some(stack) = self.stacks.get_mut(&id) {
                    stack.progress.lookups.objects.remove(key);
                }
            }
        }
        // An object whose ownership metadata was copied from another object does not count.
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
            // A stack that was refused because of the owner of this object: the owner may have changed, or the list that named
            // it was out of date.
            let is_moved = touched.is_empty() || owner(&self.index, &key) != owner_before;
            for id in self.claims.desired_by(&key).filter(|_| is_moved) {
                if let Some(stack) = self.stacks.get_mut(&id)
                    && stack.depends_on_others
                {
                    stack.restart_if_stopped();
                    self.dirty.insert(id);
                }
            }
        }
        if listed || is_blind {
            self.mark_all_dirty();
        }
        listed || unclaimed
    }

    /// E5: a record that another client deletes is created again.
    fn on_record_changed(&mut self, change: &Change) {
        let key = match change {
            Change::Present(key, seen) if seen.deleting => key,
            Change::Gone(key, ..) => key,
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

    /// Retries stacks that wait for the definition or namespace that changed.
    pub fn on_prerequisite_changed(&mut self, prerequisite: Prerequisite, name: &str, now: Timestamp) {
        for (id, stack) in
            self.stacks.iter_mut().filter(|(_, stack)| stack.blocked_on.contains(&prerequisite))
        {
            stack.on_prerequisite_changed(prerequisite, name, now);
            self.dirty.insert(*id);
        }
    }

    /// Returns objects with our metadata that are in no record.
    #[must_use]
    pub fn orphans(&self) -> Vec<OrphanObject> {
        self.index.orphans(|key| self.claims.holders(key).next().is_some())
    }

    // ── time ──

    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.stacks.values().filter_map(|stack| stack.wake_at).min()
    }

    pub fn wake(&mut self, now: Timestamp) {
        for (id, stack) in &mut self.stacks {
            if stack.wake_at.is_some_and(|at| at <= now) {
                stack.wake_at = None;
                stack.forget_deleting();
                stack.begin_next_cycle(now);
                self.dirty.insert(*id);
            }
        }
    }

    /// Schedules a check of every object. Returns the kinds that some stack has or wants.
    pub fn sweep(&mut self) -> BTreeSet<KindIn> {
        self.stacks.values_mut().for_each(StackState::sweep);
        self.mark_all_dirty();
        self.stacks.values().flat_map(StackState::kinds).collect()
    }

    // ── decisions and results ──

    /// Plans the next steps of one stack.
    pub fn advance(&mut self, id: StackId, context: AgentContext<'_>, now: Timestamp) -> Option<Decided> {
        // Removed from the map, because the plan changes this stack and reads the others.
        let mut stack = self.stacks.remove(&id)?;
        let other_stacks =
            OtherStacksView { me: id, claims: &self.claims, stacks: &self.stacks, unread: &self.unread };
        let around = Surroundings { context, index: &self.index, other_stacks: &other_stacks };
        stack.check_window(now);
        let had_next = stack.next.is_some();
        let plan = stack.plan(&around, now);
        stack.wake_for_window(now);
        let steps = stack.release();
        let reports = stack.report_unwritten_record(context.agent, now).into_iter().collect();
        let adopted = had_next && stack.next.is_none();
        let target = stack.goal.as_ref().map(|goal| goal.target.clone());
        let blocked_on = stack.blocked_on.clone();
        let fetches = stack.is_fetching();
        self.stacks.insert(id, stack);
        if adopted || fetches != self.unread.contains(&id) {
            self.update_claims(id);
        }
        // Claimed before the write, so that another stack that wants the same object is refused.
        for step in &steps {
            if let Step::WriteRecord(record) = step {
                self.claims.hold(id, record.inventory.keys());
            }
        }
        Some(Decided { plan, steps, target, blocked_on, reports })
    }

    /// Applies the result of a step.
    pub fn finish(&mut self, id: StackId, step: &Step, answer: &StepResult, now: Timestamp) -> Finished {
        if let (Step::Apply { desired, .. }, StepResult::Applied { seen, .. }) = (step, answer) {
            self.index.put(&desired.key, seen.clone());
        }
        if let (Step::Delete { key, uid, .. } | Step::Release { key, uid, .. }, StepResult::Gone)
        | (Step::Reclaim { key, uid, .. }, StepResult::Gone) = (step, answer)
        {
            self.index.absorb(Change::Gone(key.clone(), uid.clone(), LastState::Other));
        }
        if let (Step::Reclaim { key, uid, .. }, StepResult::Reclaimed) = (step, answer) {
            self.index.forget_released(key, uid);
        }
        let mut finished = Finished::default();
        let Some(stack) = self.stacks.get_mut(&id) else { return finished };
        let recorded = stack.record.as_ref().map_or(0, |record| record.inventory.len());
        let waited = stack.next.is_some();
        stack.finish(step, answer, now);
        let adopted = waited && stack.next.is_none();
        self.dirty.insert(id);
        match (step, answer) {
            (Step::WriteRecord(_), StepResult::RecordWritten { .. }) => {
                if let Some(record) = &stack.record {
                    if record.inventory.len() < recorded {
                        self.claims.hold_only(id, record.inventory.keys());
                    }
                    finished.reports.clone_from(&record.reports);
                }
            }
            (Step::WriteRecord(_), StepResult::RecordFound(found)) => {
                self.claims.hold_only(id, found.inventory.keys());
                finished.reports.clone_from(&found.reports);
                self.update_claims(id);
            }
            (Step::DropRecord, StepResult::RecordDropped) => {
                self.drop_stack(id, now);
                finished.dropped = true;
            }
            (Step::Fetch, _) => self.update_claims(id),
            // Other stacks may wait until this object is handed over or deleted, and the watch may not report
            // that.
            (Step::Apply { .. } | Step::Delete { .. }, _) => self.mark_dependents_dirty(id),
            _ => {}
        }
        if adopted {
            self.update_claims(id);
            if self.stacks.get(&id).is_some_and(StackState::is_empty) {
                self.drop_stack(id, now);
            }
        }
        finished
    }

    fn drop_stack(&mut self, id: StackId, now: Timestamp) {
        self.claims.forget(id);
        self.unread.remove(&id);
        if let Some(stack) = self.stacks.remove(&id) {
            // Targeted again meanwhile: starts from scratch.
            let desired = stack.next.or(stack.shut).or(stack.goal.map(|goal| goal.target));
            if let Some(target) = desired.filter(|target| target.removal.is_none()) {
                self.stacks.entry(id).or_default().set_target(target, now);
                self.dirty.insert(id);
            }
        }
        self.update_claims(id);
    }
}
