//! Agents, stacks and grants, with the inverted indexes that make a poll a lookup.
//!
//! Agents are in dense slots, so that a set of them is a bitmap: whom a selector matches, who holds a stack, whom a
//! change concerns are a few operations on bitmaps, at any size of the fleet.
//!
//! | module      | the question it answers                                     |
//! |-------------|-------------------------------------------------------------|
//! | `reach`     | which agents does this stack, selector or grant reach       |
//! | `concerned` | whose target state does a change make another               |
//! | `fingerprints` | is it what the database holds                            |
//! | `losses`    | what would a change take away from whom                     |
//! | `pages`     | which of them are on a page                                 |

mod concerned;
mod fingerprints;
mod losses;
mod pages;
mod reach;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::{AgentId, StackId};
use roaring::RoaringBitmap;

pub use losses::{Losses, Retargeting};
pub use pages::Place;

use super::labels::{AgentsByLabel, Slot, StacksBySelector};
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::grants::{GrantFacts, ProjectGrants};

/// How things are now, for everything whose doorbell rang.
#[derive(Debug, Default)]
pub struct Changes {
    pub agents: Vec<AgentFacts>,
    pub stacks: Vec<StackFacts>,
    /// All there are, if any of them changed.
    pub grants: Option<Vec<GrantFacts>>,
}

#[derive(Debug, Default)]
pub struct Picture {
    agents: Vec<AgentFacts>,
    slots: HashMap<AgentId, Slot>,
    /// Slots in the order of the agents' names.
    by_name: Vec<Slot>,
    active: RoaringBitmap,
    /// By the last byte of their ids: what is compared with the database at a time.
    slices: Vec<RoaringBitmap>,
    by_label: AgentsByLabel,
    stacks: HashMap<StackId, StackFacts>,
    by_selector: StacksBySelector,
    explicit: HashMap<AgentId, BTreeSet<StackId>>,
    holders: HashMap<StackId, RoaringBitmap>,
    grants: HashMap<String, Arc<ProjectGrants>>,
}

impl Picture {
    #[must_use]
    pub fn new(changes: Changes) -> Self {
        // Whom it concerns is not asked at the start: it is everybody, once.
        let mut picture = Self { agents: changes.agents, ..Self::default() };
        picture.slots.reserve(picture.agents.len());
        for slot in 0..slot(picture.agents.len()) {
            picture.enter_agent(slot);
            picture.file_agent(slot);
        }
        let mut by_name: Vec<(&str, Slot)> =
            picture.agents.iter().zip(0..).map(|(agent, slot)| (&*agent.name, slot)).collect();
        by_name.sort_unstable();
        picture.by_name = by_name.into_iter().map(|(_, slot)| slot).collect();
        picture.grants = by_project(changes.grants.unwrap_or_default());
        changes.stacks.into_iter().for_each(|stack| picture.put_stack(stack));
        picture
    }

    pub fn agent(&self, id: AgentId) -> Option<&AgentFacts> {
        self.slots.get(&id).map(|slot| self.at(*slot))
    }

    pub fn agent_named(&self, name: &str) -> Option<&AgentFacts> {
        self.place_of(name).ok().map(|at| self.at(self.by_name[at]))
    }

    pub fn stack(&self, id: StackId) -> Option<&StackFacts> {
        self.stacks.get(&id)
    }

    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    pub fn stacks(&self) -> usize {
        self.stacks.len()
    }

    /// Every stack that may reach the agent, and every known one that it holds. May repeat.
    pub fn candidates<'a>(&'a self, agent: &'a AgentFacts) -> impl Iterator<Item = &'a StackFacts> {
        let explicit = self.explicit.get(&agent.id).into_iter().flatten().copied();
        explicit
            .chain(self.by_selector.candidates(&agent.labels))
            .chain(agent.holds.iter().copied())
            .filter_map(|stack| self.stacks.get(&stack))
    }

    /// Held stacks that are not here: deleted ones that nobody held until now, or unknown ones.
    pub fn unknown_holds<'a>(&self, agents: impl IntoIterator<Item = &'a AgentFacts>) -> Vec<StackId> {
        let held: BTreeSet<StackId> =
            agents.into_iter().flat_map(|agent| agent.holds.iter().copied()).collect();
        held.into_iter().filter(|stack| !self.stacks.contains_key(stack)).collect()
    }

    /// Takes in how things are now, and tells whom that concerns: exactly those whose answer, or whose right to ask,
    /// became another.
    pub fn apply(&mut self, changes: Changes) -> RoaringBitmap {
        let mut concerned = RoaringBitmap::new();
        let mut let_go = BTreeSet::new();
        for agent in changes.agents {
            let before = self.agent(agent.id);
            let_go.extend(before.iter().flat_map(|before| before.holds.iter().copied()));
            let changed = self.concerned_by_agent(before, &agent);
            let slot = self.put_agent(agent);
            if changed {
                concerned.insert(slot);
            }
        }
        if let Some(grants) = changes.grants {
            concerned |= self.put_grants(grants);
        }
        for mut stack in changes.stacks {
            let_go.insert(stack.id);
            stack.grants = self.grants_of(&stack.project);
            concerned |= self.concerned_by_stack(self.stacks.get(&stack.id), &stack);
            self.put_stack(stack);
        }
        let_go.into_iter().for_each(|stack| self.forget_if_over(stack));
        concerned
    }

    pub(super) fn slot(&self, agent: AgentId) -> Option<Slot> {
        self.slots.get(&agent).copied()
    }

    pub(super) fn at(&self, slot: Slot) -> &AgentFacts {
        &self.agents[slot as usize]
    }

    /// Where the name is in the order of names, or would be.
    fn place_of(&self, name: &str) -> Result<usize, usize> {
        self.by_name.binary_search_by(|slot| self.at(*slot).name.as_str().cmp(name))
    }

    fn put_agent(&mut self, agent: AgentFacts) -> Slot {
        let Some(slot) = self.slot(agent.id) else {
            let slot = slot(self.agents.len());
            let place = self.place_of(&agent.name).unwrap_or_else(|place| place);
            self.agents.push(agent);
            self.by_name.insert(place, slot);
            self.enter_agent(slot);
            self.file_agent(slot);
            return slot;
        };
        let before = &self.agents[slot as usize];
        self.by_label.remove(slot, &before.labels);
        for stack in &before.holds {
            if self.holders.get_mut(stack).is_some_and(|set| set.remove(slot) && set.is_empty()) {
                self.holders.remove(stack);
            }
        }
        let renamed = before.name != agent.name;
        if renamed {
            self.by_name.retain(|other| *other != slot);
        }
        self.agents[slot as usize] = agent;
        if renamed {
            let place = self.place_of(&self.at(slot).name).unwrap_or_else(|place| place);
            self.by_name.insert(place, slot);
        }
        self.file_agent(slot);
        slot
    }

    /// Enters what is for ever: an agent keeps its slot and its id.
    fn enter_agent(&mut self, slot: Slot) {
        let id = self.at(slot).id;
        self.slots.insert(id, slot);
        self.slices.resize_with(256, RoaringBitmap::new);
        self.slices[usize::from(fingerprints::slice(&id.0))].insert(slot);
    }

    /// Enters what may change, but for its name.
    fn file_agent(&mut self, slot: Slot) {
        let agent = &mut self.agents[slot as usize];
        self.by_label.insert(slot, &mut agent.labels);
        if agent.status == AgentStatus::Active {
            self.active.insert(slot);
        } else {
            self.active.remove(slot);
        }
        for stack in &agent.holds {
            self.holders.entry(*stack).or_default().insert(slot);
        }
    }

    fn put_stack(&mut self, mut stack: StackFacts) {
        self.remove_stack(stack.id);
        stack.grants = self.grants_of(&stack.project);
        if !stack.deleted {
            self.by_selector.insert(stack.id, stack.selectors.iter().map(|target| &target.selector));
            for target in &stack.targets {
                self.explicit.entry(target.agent).or_default().insert(stack.id);
            }
        }
        self.stacks.insert(stack.id, stack);
    }

    fn remove_stack(&mut self, id: StackId) {
        let Some(before) = self.stacks.remove(&id) else { return };
        self.by_selector.remove(id, before.selectors.iter().map(|target| &target.selector));
        for target in &before.targets {
            if self.explicit.get_mut(&target.agent).is_some_and(|set| set.remove(&id) && set.is_empty()) {
                self.explicit.remove(&target.agent);
            }
        }
    }

    /// A deleted stack that nobody holds any more concerns nobody: history is the database's.
    fn forget_if_over(&mut self, id: StackId) {
        if self.stacks.get(&id).is_some_and(|stack| stack.deleted) && !self.holders.contains_key(&id) {
            self.remove_stack(id);
        }
    }

    /// Replaces all grants, and tells whom that concerns.
    fn put_grants(&mut self, grants: Vec<GrantFacts>) -> RoaringBitmap {
        let before = std::mem::replace(&mut self.grants, by_project(grants));
        let projects: BTreeSet<String> = before.keys().chain(self.grants.keys()).cloned().collect();
        let mut concerned = RoaringBitmap::new();
        for project in projects {
            let before = before.get(&project).cloned().unwrap_or_else(|| nothing_said(&project));
            let after = self.grants_of(&project);
            if before != after {
                concerned |= self.concerned_by_grants(&project, &before, &after);
                let stacks = self.stacks.values_mut().filter(|stack| stack.project == project);
                stacks.for_each(|stack| stack.grants = Arc::clone(&after));
            }
        }
        concerned
    }

    fn grants_of(&mut self, project: &str) -> Arc<ProjectGrants> {
        if let Some(known) = self.grants.get(project) {
            return Arc::clone(known);
        }
        let nothing = nothing_said(project);
        self.grants.insert(project.to_owned(), Arc::clone(&nothing));
        nothing
    }
}

fn slot(at: usize) -> Slot {
    Slot::try_from(at).expect("there are less than four billion agents")
}

fn nothing_said(project: &str) -> Arc<ProjectGrants> {
    Arc::new(ProjectGrants::new(project, Vec::new()))
}

fn by_project(grants: Vec<GrantFacts>) -> HashMap<String, Arc<ProjectGrants>> {
    let mut projects: HashMap<String, Vec<GrantFacts>> = HashMap::new();
    for grant in grants {
        projects.entry(grant.project.clone()).or_default().push(grant);
    }
    let grants = |(project, grants): (String, Vec<GrantFacts>)| {
        let grants = Arc::new(ProjectGrants::new(&project, grants));
        (project, grants)
    };
    projects.into_iter().map(grants).collect()
}
