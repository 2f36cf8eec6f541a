//! What each agent has last reported about each stack: rows of bytes by the slots of the snapshot.
//!
//! `tasks/outcome_tail` fills the rows after the broker has begun to serve and keeps them current; nothing that answers a poll reads
//! them. Slots are numbers that the snapshot gives: when it frees one, the bytes there are cleared under its lock, and when it is
//! replaced, all rows go. Slots are always named together with their numbering.
//!
//! A reader takes the rows that it needs and lets go of the lock. A row that is changed meanwhile is copied first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use brokkr_api::fleet::ViewFreshness;
use brokkr_api::{AgentId, SequenceId, StackId};
use roaring::RoaringBitmap;

use super::labels::Slot;
use super::{Index, Snapshot};
use crate::domain::fleet::row::OutcomeRow;
use crate::domain::fleet::{Reported, StoredOutcome};

#[derive(Debug, Default)]
pub struct Outcomes {
    /// Another number for each snapshot that replaces all slots.
    numbering: u64,
    /// Changes with anything that a view may show.
    revision: u64,
    rows: HashMap<StackId, Arc<OutcomeRow>>,
    /// Agents that no longer poll.
    silent: Arc<RoaringBitmap>,
    freshness: ViewFreshness,
    reread: Reread,
}

/// What has to be read again, because it may have changed without a report.
#[derive(Clone, Debug, Default)]
pub struct Reread {
    /// Agents of which the reports may have been deleted.
    pub agents: BTreeSet<AgentId>,
    /// Stacks that the snapshot did not know: reports about them were left out. After a restore, a stack may be created again under its
    /// id.
    pub stacks: BTreeSet<StackId>,
}

impl Reread {
    fn is_empty(&self) -> bool {
        self.agents.is_empty() && self.stacks.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.agents.extend(other.agents);
        self.stacks.extend(other.stacks);
    }
}

impl Outcomes {
    #[must_use]
    pub fn numbering(&self) -> u64 {
        self.numbering
    }

    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    #[must_use]
    pub fn freshness(&self) -> ViewFreshness {
        self.freshness
    }

    #[must_use]
    pub fn silent(&self) -> Arc<RoaringBitmap> {
        Arc::clone(&self.silent)
    }

    /// Returns the row of a stack; an empty one if no agent has reported on it.
    #[must_use]
    pub fn row(&self, stack: StackId) -> Arc<OutcomeRow> {
        self.rows.get(&stack).cloned().unwrap_or_default()
    }

    /// Returns the size of all rows in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.rows.values().map(|row| row.memory()).sum()
    }

    /// Follows a change of the snapshot, which has freed these slots and may change what views show.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, freed: &[Slot], reread: Reread, is_shown: bool) {
        if is_shown {
            self.revision += 1;
        }
        // All of it is read again.
        for stack in &reread.stacks {
            self.rows.remove(stack);
        }
        self.reread.extend(reread);
        // No view shows the rows of stacks that the snapshot has dropped.
        if self.rows.len() > snapshot.stacks() {
            self.rows.retain(|stack, _| snapshot.stack(*stack).is_some());
        }
        if freed.is_empty() {
            return;
        }
        for row in self.rows.values_mut() {
            let has_reported = freed.iter().filter(|slot| row.reported(**slot).is_some());
            let cleared: Vec<(Slot, Option<Reported>)> = has_reported.map(|slot| (*slot, None)).collect();
            if !cleared.is_empty() {
                Arc::make_mut(row).change(&cleared, snapshot.slots(), &[]);
            }
        }
        let silent = Arc::make_mut(&mut self.silent);
        freed.iter().for_each(|slot| {
            silent.remove(*slot);
        });
    }

    /// Begins another numbering, without any rows. Returns the former rows: dropping many takes a while.
    pub(super) fn renumber(&mut self) -> Self {
        let next = Self { numbering: self.numbering + 1, revision: self.revision + 1, ..Self::default() };
        std::mem::replace(self, next)
    }
}

/// What was reported on a stack, by slot.
type Changes = Vec<(Slot, Option<Reported>)>;

impl Index {
    /// Returns a read lock of the outcomes. Do not hold it for long.
    pub fn outcomes(&self) -> RwLockReadGuard<'_, Outcomes> {
        self.outcomes.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outcomes_mut(&self) -> RwLockWriteGuard<'_, Outcomes> {
        self.outcomes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies what agents have reported, as it is stored now. Returns false if the slots have another numbering, and nothing was
    /// applied. Agents and stacks that the snapshot does not know are left out: they are read again when it knows them.
    pub fn change_outcomes(&self, numbering: u64, stored: &[StoredOutcome]) -> bool {
        let snapshot = self.snapshot();
        let mut by_stack: HashMap<StackId, Changes> = HashMap::new();
        for outcome in stored {
            let Some(slot) = snapshot.slot(outcome.agent) else { continue };
            by_stack.entry(outcome.stack).or_default().push((slot, outcome.reported));
        }
        let mut outcomes = self.outcomes_mut();
        if outcomes.numbering != numbering {
            return false;
        }
        for (stack, mut changes) in by_stack {
            let Some(facts) = snapshot.stack(stack) else { continue };
            // All of them were read at the same moment: a repeated agent has the same report.
            changes.sort_by_key(|(slot, _)| *slot);
            changes.dedup_by_key(|(slot, _)| *slot);
            let row = outcomes.row(stack);
            changes.retain(|(slot, reported)| row.reported(*slot) != *reported);
            if changes.is_empty() {
                continue;
            }
            // Otherwise it would be copied.
            drop(row);
            let kept: Vec<SequenceId> = facts.objects().map(|object| object.sequence_id).collect();
            let row = outcomes.rows.entry(stack).or_default();
            Arc::make_mut(row).change(&changes, snapshot.slots(), &kept);
            if row.is_empty() {
                outcomes.rows.remove(&stack);
            }
            outcomes.revision += 1;
        }
        true
    }

    /// Replaces everything that is known to be reported by these agents.
    pub fn replace_outcomes_of(&self, numbering: u64, agents: &[AgentId], stored: &[StoredOutcome]) -> bool {
        let found: HashSet<(StackId, AgentId)> =
            stored.iter().map(|outcome| (outcome.stack, outcome.agent)).collect();
        let mut changes = stored.to_vec();
        {
            let (snapshot, outcomes) = (self.snapshot(), self.outcomes());
            for agent in agents {
                let Some(slot) = snapshot.slot(*agent) else { continue };
                let has = |(_, row): &(&StackId, &Arc<OutcomeRow>)| row.reported(slot).is_some();
                let known = outcomes.rows.iter().filter(has).map(|(stack, _)| *stack);
                let gone = known.filter(|stack| !found.contains(&(*stack, *agent)));
                changes.extend(gone.map(|stack| StoredOutcome { stack, agent: *agent, reported: None }));
            }
        }
        self.change_outcomes(numbering, &changes)
    }

    /// Replaces the agents that no longer poll.
    pub fn set_silent(&self, numbering: u64, agents: &[AgentId]) -> bool {
        let snapshot = self.snapshot();
        let silent = snapshot.with_ids(agents);
        let mut outcomes = self.outcomes_mut();
        if outcomes.numbering != numbering {
            return false;
        }
        if *outcomes.silent != silent {
            outcomes.silent = Arc::new(silent);
            outcomes.revision += 1;
        }
        true
    }

    /// Records that the outcomes contain everything that was stored by then.
    pub fn outcomes_are_current(&self, numbering: u64, freshness: ViewFreshness) -> bool {
        let mut outcomes = self.outcomes_mut();
        if outcomes.numbering != numbering {
            return false;
        }
        if outcomes.freshness.complete != freshness.complete {
            outcomes.revision += 1;
        }
        outcomes.freshness = freshness;
        true
    }

    /// Forgets everything that agents have reported, as if the slots had another numbering.
    pub fn forget_outcomes(&self) {
        let before = self.outcomes_mut().renumber();
        // Not under the lock: it takes a while.
        drop(before);
    }

    /// Takes what has to be read again. If that fails, it has to be given back.
    pub fn take_reread(&self) -> Reread {
        if self.outcomes().reread.is_empty() {
            return Reread::default();
        }
        std::mem::take(&mut self.outcomes_mut().reread)
    }

    pub fn give_back_reread(&self, reread: Reread) {
        self.outcomes_mut().reread.extend(reread);
    }
}
