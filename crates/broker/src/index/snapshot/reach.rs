//! Which agents a stack, a selector or a grant reaches, as bitmaps.

use std::borrow::Cow;
use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::{AgentId, Selector, StackId};
use jiff::Timestamp;
use roaring::RoaringBitmap;

use super::{Snapshot, by_project, no_grants};
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::grants::{ProjectGrants, Rules};

impl Snapshot {
    /// Returns exactly the agents that the selector matches.
    #[must_use]
    pub fn select(&self, selector: &Selector) -> RoaringBitmap {
        self.by_label.select(selector)
    }

    #[must_use]
    pub fn everyone(&self) -> RoaringBitmap {
        self.by_label.everyone().clone()
    }

    #[must_use]
    pub fn with_status(&self, status: AgentStatus) -> RoaringBitmap {
        match status {
            AgentStatus::Active => self.active.clone(),
            AgentStatus::Inactive => self.by_label.everyone() - &self.active,
        }
    }

    /// Returns the agents with this text in their names.
    #[must_use]
    pub fn named_like(&self, part: &str) -> RoaringBitmap {
        self.by_label.everyone().iter().filter(|slot| self.at(*slot).name.contains(part)).collect()
    }

    /// Returns those of these agents that exist.
    #[must_use]
    pub fn with_ids(&self, ids: &[AgentId]) -> RoaringBitmap {
        ids.iter().filter_map(|agent| self.slot(*agent)).collect()
    }

    /// Returns the ids of these agents, in ascending order. Unlike slots, they stay valid when agents are deleted.
    #[must_use]
    pub fn ids(&self, agents: &RoaringBitmap) -> Vec<AgentId> {
        let mut ids: Vec<AgentId> = agents.iter().map(|slot| self.at(slot).id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns every agent that the stack reaches.
    #[must_use]
    pub fn reach(&self, stack: &StackFacts) -> RoaringBitmap {
        self.targeted(stack) & &*self.covered(&stack.grants)
    }

    /// Returns the facts of every agent that the stack reaches.
    #[must_use]
    pub fn reached(&self, stack: &StackFacts) -> Vec<&AgentFacts> {
        self.reach(stack).into_iter().map(|slot| self.at(slot)).collect()
    }

    pub fn holders(&self, stack: StackId) -> impl Iterator<Item = &AgentFacts> {
        self.holders.get(&stack).into_iter().flatten().map(|slot| self.at(slot))
    }

    /// Returns how many agents hold the stack although it does not reach them: it was retargeted, or a grant was
    /// withdrawn.
    #[must_use]
    pub fn holders_out_of_reach(&self, stack: &StackFacts) -> u64 {
        self.holders.get(&stack.id).map_or(0, |holders| (holders - self.reach(stack)).len())
    }

    /// Returns the grants of a project.
    #[must_use]
    pub fn project_grants(&self, project: &str) -> Arc<ProjectGrants> {
        self.grants.get(project).cloned().unwrap_or_else(|| no_grants(project, &self.unrestricted))
    }

    /// Returns whether a freeze is in force for an agent that the stack reaches.
    #[must_use]
    pub fn is_frozen(&self, stack: StackId, now: Timestamp) -> bool {
        let Some(stack) = self.stacks.get(&stack) else { return false };
        let mut frozen = self.windows.frozen(&stack.project, now).peekable();
        if frozen.peek().is_none() {
            return false;
        }
        let reached = self.reach(stack);
        frozen.any(|selector| !self.select(selector).is_disjoint(&reached))
    }

    /// Returns whether the snapshot has exactly these rules.
    #[must_use]
    pub fn has_rules(&self, all: Rules) -> bool {
        let is_listed =
            |grants: &ProjectGrants| matches!(grants, ProjectGrants::Listed(list) if !list.is_empty());
        let expected = by_project(all.grants);
        let here = self.grants.iter().filter(|(_, grants)| is_listed(grants));
        self.unrestricted == all.unrestricted
            && *self.windows == all.windows
            && self.health_rules == all.health_rules
            && self.upgrades == all.upgrades
            && here.clone().count() == expected.len()
            && here.into_iter().all(|(project, grants)| expected.get(project) == Some(grants))
    }

    /// Returns the agents that are granted to a project. Others are invisible to it.
    #[must_use]
    pub fn granted(&self, project: &str) -> RoaringBitmap {
        self.covered(&self.project_grants(project)).into_owned()
    }

    /// Returns the agents that the stack names or selects, regardless of grants.
    pub(super) fn targeted(&self, stack: &StackFacts) -> RoaringBitmap {
        if stack.deleted {
            return RoaringBitmap::new();
        }
        let mut found = self.selected(stack);
        found.extend(stack.targets.iter().filter_map(|target| self.slot(target.agent)));
        found
    }

    /// Returns the agents that the stack's selectors match.
    pub(super) fn selected(&self, stack: &StackFacts) -> RoaringBitmap {
        let mut sets = stack.selectors.iter().map(|target| self.select(&target.selector));
        let mut found = sets.next().unwrap_or_default();
        sets.for_each(|set| found |= set);
        found
    }

    pub(super) fn covered(&self, grants: &ProjectGrants) -> Cow<'_, RoaringBitmap> {
        match grants {
            ProjectGrants::Unlimited => Cow::Borrowed(self.by_label.everyone()),
            ProjectGrants::Listed(grants) => {
                let mut found = RoaringBitmap::new();
                grants.iter().for_each(|grant| found |= self.select(&grant.selector));
                Cow::Owned(found)
            }
        }
    }
}
