//! Which agents a stack, a selector or a grant reaches, as bitmaps; and pages of them by name.

use std::borrow::Cow;
use std::sync::Arc;

use brokkr_api::{Selector, StackId};
use roaring::RoaringBitmap;

use super::{Picture, by_project, nothing_said};
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::grants::{GrantFacts, ProjectGrants};

/// Up to so many agents, sorting those is quicker than walking all names.
const FEW: u64 = 20_000;

impl Picture {
    /// Exactly the agents that the selector matches.
    #[must_use]
    pub fn select(&self, selector: &Selector) -> RoaringBitmap {
        self.by_label.select(selector)
    }

    /// Every agent that the stack reaches.
    #[must_use]
    pub fn reach(&self, stack: &StackFacts) -> RoaringBitmap {
        self.targeted(stack) & &*self.covered(&stack.grants)
    }

    /// The same, one by one.
    #[must_use]
    pub fn reached(&self, stack: &StackFacts) -> Vec<&AgentFacts> {
        self.reach(stack).into_iter().map(|slot| self.at(slot)).collect()
    }

    pub fn holders(&self, stack: StackId) -> impl Iterator<Item = &AgentFacts> {
        self.holders.get(&stack).into_iter().flatten().map(|slot| self.at(slot))
    }

    /// What a project may do, and on whom.
    #[must_use]
    pub fn project_grants(&self, project: &str) -> Arc<ProjectGrants> {
        self.grants.get(project).cloned().unwrap_or_else(|| nothing_said(project))
    }

    /// Whether these are all the grants that it knows.
    #[must_use]
    pub fn has_grants(&self, grants: Vec<GrantFacts>) -> bool {
        let said = |grants: &ProjectGrants| matches!(grants, ProjectGrants::Listed(list) if !list.is_empty());
        let there = by_project(grants);
        let here = self.grants.iter().filter(|(_, grants)| said(grants));
        here.clone().count() == there.len()
            && here.into_iter().all(|(project, grants)| there.get(project) == Some(grants))
    }

    /// The agents that are granted to a project. Others are as if they were not there.
    #[must_use]
    pub fn granted(&self, project: &str) -> RoaringBitmap {
        self.covered(&self.project_grants(project)).into_owned()
    }

    /// A page of these agents in the order of their names, one more than `limit` if there are more.
    #[must_use]
    pub fn page(&self, agents: &RoaringBitmap, after: Option<&str>, limit: usize) -> Vec<&AgentFacts> {
        let most = limit + 1;
        if agents.len() > FEW {
            let start = after.map_or(0, |after| match self.place_of(after) {
                Ok(at) => at + 1,
                Err(at) => at,
            });
            let rest = self.by_name[start..].iter().filter(|slot| agents.contains(**slot));
            return rest.take(most).map(|slot| self.at(*slot)).collect();
        }
        let mut page: Vec<&AgentFacts> = agents.iter().map(|slot| self.at(slot)).collect();
        page.retain(|agent| after.is_none_or(|after| agent.name.as_str() > after));
        if page.len() > most {
            page.select_nth_unstable_by(most, |one, other| one.name.cmp(&other.name));
            page.truncate(most);
        }
        page.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        page
    }

    /// Whom the stack names or selects, whatever its project may do.
    pub(super) fn targeted(&self, stack: &StackFacts) -> RoaringBitmap {
        if stack.deleted {
            return RoaringBitmap::new();
        }
        let mut found = self.selected(stack);
        found.extend(stack.targets.iter().filter_map(|target| self.slot(target.agent)));
        found
    }

    /// Whom its selectors match.
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
