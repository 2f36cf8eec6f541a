//! Which agents should have which version of a stack, and in which column of a matrix they are.

use std::collections::BTreeSet;

use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Removal;
use brokkr_api::fleet::{FleetColumn, MATRIX_SIDE};
use brokkr_api::{AgentId, Selector, StackId};
use roaring::RoaringBitmap;

use super::{Changes, Snapshot};
use crate::domain::envelope::{deletion, desired};
use crate::domain::facts::{AgentFacts, ObjectFacts, StackFacts};
use crate::domain::fleet::matrix::Columns;
use crate::domain::fleet::row::OutcomeRow;
use crate::domain::fleet::{TargetGroup, add_to_group};
use crate::domain::release::kept_by;

impl Snapshot {
    /// Returns the number of slots: every slot is below it.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.agents.len()
    }

    /// Returns whether a view may be another one after these changes. Nearly all of them are sessions and holds.
    #[must_use]
    pub fn changes_views(&self, changes: &Changes) -> bool {
        let is_shown = |after: &AgentFacts| {
            let Some(before) = self.agent(after.id) else { return true };
            // What an agent should have depends on what it holds only in a rollout.
            let holds_other = |stack: &StackId| before.holds(*stack) != after.holds(*stack);
            (before.status, before.labels_changed_at) != (after.status, after.labels_changed_at)
                || before.labels != after.labels
                || before.holds != after.holds && self.rolling.iter().any(holds_other)
        };
        let is_same =
            changes.deleted_agents.is_empty() && changes.stacks.is_empty() && changes.rules.is_none();
        !is_same || changes.agents.iter().any(is_shown)
    }

    /// Returns those of these changed agents of which the reports may have been deleted: with the key, or by an abandonment. An agent that
    /// was notified without a change has lost its reports in any case.
    #[must_use]
    pub fn without_reports(&self, changed: &[AgentFacts]) -> BTreeSet<AgentId> {
        let is_doubtful = |after: &&AgentFacts| {
            after.status == AgentStatus::Inactive
                || self
                    .agent(after.id)
                    .is_some_and(|before| before.public_key != after.public_key || before == *after)
        };
        changed.iter().filter(is_doubtful).map(|agent| agent.id).collect()
    }

    /// Returns the stacks of a project that agents can have.
    #[must_use]
    pub fn stacks_of(&self, project: &str) -> Vec<StackId> {
        let is_shown = |stack: &&StackFacts| stack.project == project && !stack.deleted && stack.has_object();
        self.stacks.values().filter(is_shown).map(|stack| stack.id).collect()
    }

    /// Returns the active agents that are granted to a project.
    #[must_use]
    pub fn usable(&self, project: &str) -> RoaringBitmap {
        self.granted(project) & &self.active
    }

    /// Returns the agents of a matrix, by their values of a label.
    #[must_use]
    pub fn columns(&self, project: &str, by: Option<&str>, selector: Option<&Selector>) -> Columns {
        let mut agents = self.usable(project);
        if let Some(selector) = selector {
            agents &= self.select(selector);
        }
        let Some(key) = by else { return Columns::new(vec![(FleetColumn::All, agents)], self.slots()) };
        let (number, mut values) = self.by_label.values_among(key, &agents, None, MATRIX_SIDE);
        let unset = &agents - self.by_label.with_key(key);
        let others = usize::from(!unset.is_empty());
        // One column fewer if there has to be one for the remaining values.
        if number + others > MATRIX_SIDE {
            values.truncate(MATRIX_SIDE - 1 - others);
        }
        values.sort_unstable();
        let mut columns: Vec<(FleetColumn, RoaringBitmap)> = Vec::with_capacity(values.len() + 2);
        let mut remaining = &agents - &unset;
        for (value, _) in values {
            let members = self.by_label.with_label(key, value) & &agents;
            remaining -= &members;
            columns.push((FleetColumn::Value { value: value.to_owned() }, members));
        }
        if !unset.is_empty() {
            columns.push((FleetColumn::Unset, unset));
        }
        if !remaining.is_empty() {
            columns.push((FleetColumn::Other, remaining));
        }
        Columns::new(columns, self.slots())
    }

    /// Returns those of these agents that the stack targets, by what they should have. While the stack is being deleted, those that have
    /// reported that they have removed it should have nothing.
    #[must_use]
    pub fn target_groups(
        &self,
        stack: &StackFacts,
        among: &RoaringBitmap,
        row: &OutcomeRow,
    ) -> Vec<TargetGroup> {
        // No agent can have a stack without a version.
        let Some(newest) = stack.newest() else { return Vec::new() };
        let mut rest = self.targeted(stack) & among;
        if !stack.has_rollout() {
            return vec![TargetGroup { agents: rest, target: Some((newest.sequence_id, None)) }];
        }
        let none = RoaringBitmap::new();
        let holders = self.holders.get(&stack.id).unwrap_or(&none);
        let mut versions: Vec<(&ObjectFacts, RoaringBitmap)> = Vec::new();
        if let Some(release) = stack.releases().last() {
            let agents = self.released(stack, release, &rest);
            rest -= &agents;
            versions.push((&release.object, agents));
        }
        if let Some(base) = stack.base() {
            let mut agents = match stack.widening() {
                Some(widening) => self.widened(stack, widening, &rest),
                None => rest.clone(),
            };
            // Those that have removed the stack in a rollout that was withdrawn do not get it again.
            agents -= self.deleted_from(stack, &agents - holders);
            rest -= &agents;
            versions.push((base, agents));
        }
        // Nothing is released to these, but some keep what they have begun.
        for slot in &rest & holders {
            let Some(kept) = kept_by(self.at(slot), stack) else { continue };
            rest.remove(slot);
            versions.push((kept, [slot].into_iter().collect()));
        }
        let mut groups = Vec::new();
        for (object, mut agents) in versions {
            let mut removal = None;
            if object.is_deletion_marker {
                // An agent that does not have the stack has nothing to remove.
                let without = &agents - holders;
                agents -= &without;
                rest |= without;
                removal = Some(deletion(object));
            }
            add_to_group(&mut groups, Some((object.sequence_id, removal)), agents);
        }
        if newest.is_deletion_marker {
            add_to_group(&mut groups, None, rest & (row.reporters() | holders));
        } else {
            // They wait for the newest version.
            add_to_group(&mut groups, Some((newest.sequence_id, None)), rest);
        }
        groups
    }

    /// Returns those of these agents that have anything to do with the stack: it reaches them, or they hold it or have reported on it.
    #[must_use]
    pub fn all_groups(
        &self,
        stack: &StackFacts,
        among: &RoaringBitmap,
        row: &OutcomeRow,
    ) -> Vec<TargetGroup> {
        let covered = self.covered(&stack.grants);
        let mut groups = self.target_groups(stack, &(&*covered & among), row);
        let none = RoaringBitmap::new();
        let holders = self.holders.get(&stack.id).unwrap_or(&none) & among;
        // Those that hold the stack although it does not reach them.
        let former = &holders - (self.targeted(stack) & &*covered);
        let removing = &former & &*covered;
        if let Some(newest) = stack.newest() {
            let removal = if stack.deleted { deletion(newest) } else { Removal::Untargeted };
            add_to_group(&mut groups, Some((newest.sequence_id, Some(removal))), removing.clone());
        }
        // A withdrawn grant freezes the stack: each of these agents keeps what it has.
        for slot in former - removing {
            let target =
                desired(self.at(slot), stack).map(|desired| (desired.sequence_id(), desired.removal));
            add_to_group(&mut groups, target, [slot].into_iter().collect());
        }
        let mut done = (row.reporters() & among) | holders;
        groups.iter().for_each(|group| done -= &group.agents);
        add_to_group(&mut groups, None, done);
        groups
    }
}
