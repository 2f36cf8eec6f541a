//! Views of a fleet. Stacks are looked at one after the other, and a rollout in parts, so that no lock is held for long and not all sets
//! of agents are in memory.

use std::borrow::Cow;
use std::sync::Arc;

use brokkr_api::fleet::{FleetAgents, FleetMatrix, LabelKey, ViewFreshness};
use brokkr_api::{AgentId, Selector, SequenceId, StackId};
use roaring::RoaringBitmap;

use super::{Index, LabelFilter, Snapshot};
use crate::domain::facts::StackFacts;
use crate::domain::fleet::matrix::MatrixBuilder;
use crate::domain::fleet::row::OutcomeRow;
use crate::domain::fleet::summary::SummaryBuilder;
use crate::domain::fleet::{StackView, StoredOutcome, TargetGroup, add_to_group};

/// The number of slots that are looked at under one lock if it takes long: each of them in a rollout.
const SLOTS: u32 = if cfg!(test) { 2 } else { 1 << 18 };
/// The number of ids that are looked up under one lock.
const LOOKUPS: usize = 5000;

/// What a matrix shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixRequest {
    pub project: String,
    /// The key of the label that makes the columns.
    pub by: Option<String>,
    pub selector: Option<Selector>,
}

/// The stacks of a project, and the agents that they reach, each counted once.
#[derive(Clone, Copy, Debug)]
pub struct FleetCounts {
    pub freshness: ViewFreshness,
    pub stacks: u64,
    pub agents: FleetAgents,
}

/// A stack with every agent that has anything to do with it.
#[derive(Clone, Debug)]
pub struct WholeStack {
    pub freshness: ViewFreshness,
    /// The numbering of the slots.
    pub numbering: u64,
    pub view: StackView,
}

impl Index {
    /// Counts the agents of every stack of a project by the values of a label.
    #[must_use]
    pub fn matrix(&self, request: &MatrixRequest) -> FleetMatrix {
        loop {
            let MatrixRequest { project, by, selector } = request;
            let (numbering, columns, stacks, freshness, silent) = {
                let snapshot = self.snapshot();
                let (numbering, freshness, silent) = {
                    let outcomes = self.outcomes();
                    (outcomes.numbering(), outcomes.freshness(), outcomes.silent())
                };
                let columns = snapshot.columns(project, by.as_deref(), selector.as_ref());
                (numbering, columns, snapshot.stacks_of(project), freshness, silent)
            };
            let mut matrix = MatrixBuilder::new(&columns, &silent);
            if self.visit_stacks(numbering, &stacks, &columns.agents, |stack| matrix.add(stack)) {
                let rows = matrix.finish();
                return FleetMatrix { freshness, columns: columns.columns, rows };
            }
        }
    }

    /// Counts the stacks of a project, and the agents that they reach.
    #[must_use]
    pub fn fleet_counts(&self, project: &str) -> FleetCounts {
        loop {
            let (numbering, freshness, silent, slots, stacks, agents) = {
                let snapshot = self.snapshot();
                let (stacks, agents) = (snapshot.stacks_of(project), snapshot.usable(project));
                let outcomes = self.outcomes();
                let (freshness, silent) = (outcomes.freshness(), outcomes.silent());
                (outcomes.numbering(), freshness, silent, snapshot.slots(), stacks, agents)
            };
            let mut summary = SummaryBuilder::new(slots);
            if self.visit_stacks(numbering, &stacks, &agents, |stack| summary.add(stack)) {
                let (stacks, agents) = summary.finish(&silent);
                return FleetCounts { freshness, stacks, agents };
            }
        }
    }

    /// Returns a stack with the agents that it reaches, and those that hold it or have reported on it although it does not reach them.
    /// None if the index does not know it.
    #[must_use]
    pub fn whole_stack(&self, stack: StackId) -> Option<WholeStack> {
        loop {
            let (numbering, everyone, freshness) = {
                let snapshot = self.snapshot();
                let outcomes = self.outcomes();
                (outcomes.numbering(), snapshot.everyone(), outcomes.freshness())
            };
            let groups = |snapshot: &Snapshot, stack: &StackFacts, part: &RoaringBitmap, row: &OutcomeRow| {
                snapshot.all_groups(stack, part, row)
            };
            if let Ok(view) = self.stack_view(numbering, stack, &everyone, groups) {
                return view.map(|view| WholeStack { freshness, numbering, view });
            }
        }
    }

    /// Returns a deleted stack that the index has dropped, because no agent holds it, with the agents that have reported on it.
    #[must_use]
    pub fn dropped_stack(
        &self,
        stack: StackId,
        newest: Option<SequenceId>,
        stored: &[StoredOutcome],
    ) -> WholeStack {
        let snapshot = self.snapshot();
        let slot = |outcome: &StoredOutcome| Some((snapshot.slot(outcome.agent)?, outcome.reported));
        let reports: Vec<_> = stored.iter().filter_map(slot).collect();
        let mut row = OutcomeRow::default();
        row.change(&reports, snapshot.slots(), &[]);
        let groups = vec![TargetGroup { agents: row.reporters(), target: None }];
        let view = StackView { id: stack, name: String::new(), newest, groups, row: Arc::new(row) };
        let outcomes = self.outcomes();
        WholeStack { freshness: outcomes.freshness(), numbering: outcomes.numbering(), view }
    }

    /// Returns those of these agents that exist. There may be as many as agents.
    #[must_use]
    pub fn with_ids(&self, ids: &[AgentId]) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        ids.chunks(LOOKUPS).for_each(|some| found |= self.snapshot().with_ids(some));
        found
    }

    /// Returns the labels of the agents that `visible` returns. Each key is counted under a lock of its own: one that has another value
    /// on each agent takes a while.
    #[must_use]
    pub fn label_keys(
        &self,
        visible: impl Fn(&Snapshot) -> RoaringBitmap,
        filter: &LabelFilter,
    ) -> Vec<LabelKey> {
        loop {
            let (numbering, agents, keys) = {
                let snapshot = self.snapshot();
                let agents = visible(&snapshot);
                let keys = snapshot.label_keys(&agents, filter);
                (self.outcomes().numbering(), agents, keys)
            };
            let count = |key| {
                let snapshot = self.snapshot();
                let is_same = self.outcomes().numbering() == numbering;
                is_same.then(|| snapshot.label_key(key, &agents, filter))
            };
            if let Some(keys) = keys.into_iter().map(count).collect() {
                return keys;
            }
        }
    }

    /// Calls `add` with each of these stacks and those of these agents that it reaches, unless it is gone meanwhile. Returns false if
    /// agents got other slots.
    fn visit_stacks(
        &self,
        numbering: u64,
        stacks: &[StackId],
        agents: &RoaringBitmap,
        mut add: impl FnMut(&StackView),
    ) -> bool {
        let groups = |snapshot: &Snapshot, stack: &StackFacts, part: &RoaringBitmap, row: &OutcomeRow| {
            snapshot.target_groups(stack, part, row)
        };
        for stack in stacks {
            let Ok(view) = self.stack_view(numbering, *stack, agents, groups) else { return false };
            view.iter().for_each(&mut add);
        }
        true
    }

    /// Returns a stack with these agents, grouped by `groups`; none if the index does not know it.
    fn stack_view(
        &self,
        numbering: u64,
        id: StackId,
        agents: &RoaringBitmap,
        groups: impl Fn(&Snapshot, &StackFacts, &RoaringBitmap, &OutcomeRow) -> Vec<TargetGroup>,
    ) -> Result<Option<StackView>, Renumbered> {
        let (mut found, mut from): (Option<StackView>, u32) = (None, 0);
        loop {
            let snapshot = self.snapshot();
            let row = {
                let outcomes = self.outcomes();
                if outcomes.numbering() != numbering {
                    return Err(Renumbered);
                }
                outcomes.row(id)
            };
            let Some(facts) = snapshot.stack(id) else { return Ok(None) };
            let view = found.get_or_insert_with(|| {
                let newest = facts.newest().map(|newest| newest.sequence_id);
                StackView { id, name: facts.name.clone(), newest, groups: Vec::new(), row }
            });
            let mut part = Cow::Borrowed(agents);
            let mut to = u32::MAX;
            if facts.has_rollout() || from > 0 {
                to = from.saturating_add(SLOTS);
                let mut slots = RoaringBitmap::new();
                slots.insert_range(from..to);
                part = Cow::Owned(slots & agents);
            }
            for group in groups(&snapshot, facts, &part, &view.row) {
                add_to_group(&mut view.groups, group.target, group.agents);
            }
            if agents.max().is_none_or(|last| last < to) {
                return Ok(found);
            }
            from = to;
        }
    }
}

/// Agents got other slots.
#[derive(Debug)]
struct Renumbered;
