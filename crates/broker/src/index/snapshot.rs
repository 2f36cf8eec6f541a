//! Agents, stacks and grants, with the inverted indexes that make a poll a lookup.
//!
//! Agents are in dense slots, so that a set of them is a bitmap. A few operations on bitmaps find the agents
//! that a selector matches, that hold a stack or that a change affects, at any size of the fleet.
//!
//! | module         | the question it answers                                     |
//! |----------------|-------------------------------------------------------------|
//! | `reach`        | which agents does this stack, selector or grant reach       |
//! | `affected`     | which agents have another target state after a change       |
//! | `fingerprints` | does it match the database                                  |
//! | `fleet`        | which agents should have what, for the views of a fleet     |
//! | `label_keys`   | which labels do agents have, and how many have each         |
//! | `losses`       | which agents would lose which stacks                        |
//! | `pages`        | which agents are on a page                                  |
//! | `search`       | which agents, stacks and versions does a text name          |
//! | `released`     | which agents get a version of a rollout                     |
//! | `rolling`      | how far the rollout of a stack is                           |
//! | `upgrades`     | which agents are offered an upgrade, how far its rollout is |

mod affected;
mod fingerprints;
mod fleet;
mod label_keys;
mod losses;
mod pages;
mod reach;
mod released;
mod rolling;
mod search;
#[cfg(test)]
mod tests;
mod upgrades;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, StackId};
use bytes::Bytes;
use roaring::RoaringBitmap;

pub use label_keys::LabelFilter;
pub use losses::{Losses, Retargeting};
pub use pages::AgentCursor;

use super::labels::{AgentsByLabel, Slot, StacksBySelector};
use crate::domain::envelope::desired;
use crate::domain::facts::{AgentFacts, HealthRuleFacts, StackFacts};
use crate::domain::grants::{GrantFacts, ProjectGrants, Rules};
use crate::domain::release::random_bits;
use crate::domain::upgrades::UpgradeFacts;
use crate::domain::windows::Windows;

/// The current state of everything that changed.
#[derive(Debug, Default)]
pub struct Changes {
    pub agents: Vec<AgentFacts>,
    pub deleted_agents: Vec<AgentId>,
    pub stacks: Vec<StackFacts>,
    /// All grants, windows, health rules and upgrades of the installation, if any of them changed.
    pub rules: Option<Rules>,
}

#[derive(Debug, Default)]
pub struct Snapshot {
    /// By slot. The slot of a deleted agent has stale facts and is in no other field but `free`.
    agents: Vec<AgentFacts>,
    /// By slot: the random part of the id, which determines the agent's place in rollouts. Beside the facts, because a step of a
    /// rollout reads it for every agent.
    random: Vec<u64>,
    /// Slots for new agents.
    free: Vec<Slot>,
    slots: HashMap<AgentId, Slot>,
    /// Slots in the order of the agents' names.
    by_name: Vec<Slot>,
    active: RoaringBitmap,
    /// Agents by the last byte of their ids: the slices that are compared with the database.
    slices: Vec<RoaringBitmap>,
    by_label: AgentsByLabel,
    stacks: HashMap<StackId, StackFacts>,
    by_selector: StacksBySelector,
    explicit: HashMap<AgentId, BTreeSet<StackId>>,
    holders: HashMap<StackId, RoaringBitmap>,
    /// Stacks with a version that not every agent gets, also if that is the base.
    rolling: BTreeSet<StackId>,
    /// Stacks with suspensions.
    suspended: BTreeSet<StackId>,
    grants: HashMap<String, Arc<ProjectGrants>>,
    /// Projects that are not restricted to their grants.
    unrestricted: BTreeSet<String>,
    windows: Arc<Windows>,
    health_rules: Option<HealthRuleFacts>,
    /// Nearly always empty, or a completed one.
    upgrades: Vec<UpgradeFacts>,
    /// The agents that allow upgrades.
    upgradable: RoaringBitmap,
}

impl Snapshot {
    #[must_use]
    pub fn new(changes: Changes) -> Self {
        // Affected agents are not computed at the start: all agents are affected.
        let mut snapshot = Self { agents: changes.agents, ..Self::default() };
        snapshot.slots.reserve(snapshot.agents.len());
        for slot in 0..slot(snapshot.agents.len()) {
            snapshot.register_agent(slot);
            snapshot.index_agent(slot);
        }
        let mut by_name: Vec<(&str, Slot)> =
            snapshot.agents.iter().zip(0..).map(|(agent, slot)| (&*agent.name, slot)).collect();
        by_name.sort_unstable();
        snapshot.by_name = by_name.into_iter().map(|(_, slot)| slot).collect();
        let Rules { grants, unrestricted, windows, health_rules, upgrades } =
            changes.rules.unwrap_or_default();
        (snapshot.grants, snapshot.unrestricted) = (by_project(grants), unrestricted);
        (snapshot.windows, snapshot.health_rules) = (Arc::new(windows), health_rules);
        snapshot.upgrades = upgrades;
        changes.stacks.into_iter().for_each(|stack| snapshot.put_stack(stack));
        snapshot
    }

    pub fn agent(&self, id: AgentId) -> Option<&AgentFacts> {
        self.slots.get(&id).map(|slot| self.at(*slot))
    }

    pub fn agent_named(&self, name: &str) -> Option<&AgentFacts> {
        self.rank_of(name).ok().map(|at| self.at(self.by_name[at]))
    }

    pub fn stack(&self, id: StackId) -> Option<&StackFacts> {
        self.stacks.get(&id)
    }

    pub fn agents(&self) -> usize {
        self.slots.len()
    }

    pub fn stacks(&self) -> usize {
        self.stacks.len()
    }

    /// Returns whether any stack is suspended, or an object of it.
    pub fn has_suspension(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// Returns the checksum of the health rules of the installation.
    pub fn health_rules(&self) -> Option<Checksum> {
        self.health_rules.as_ref().map(|rules| rules.checksum)
    }

    /// Returns the health rules with this checksum, if they are in the target state of the agent.
    pub fn health_rules_of(&self, agent: &AgentFacts, checksum: Checksum) -> Option<Bytes> {
        let of_stacks = self.candidates(agent).filter_map(|stack| {
            let rules = stack.health_rules.as_deref().filter(|rules| rules.checksum == checksum)?;
            (agent.status == AgentStatus::Active && desired(agent, stack).is_some()).then_some(rules)
        });
        let of_installation = self.health_rules.iter().filter(|rules| rules.checksum == checksum);
        of_installation.chain(of_stacks).next().map(|rules| rules.rules.clone())
    }

    /// Returns every stack that may reach the agent, and every known one that it holds. Stacks may repeat.
    pub fn candidates<'a>(&'a self, agent: &'a AgentFacts) -> impl Iterator<Item = &'a StackFacts> {
        let explicit = self.explicit.get(&agent.id).into_iter().flatten().copied();
        explicit
            .chain(self.by_selector.candidates(&agent.labels))
            .chain(agent.holds.iter().copied())
            .filter_map(|stack| self.stacks.get(&stack))
    }

    /// Returns held stacks that are not in the snapshot: those that the database does not know, and deleted
    /// ones that no agent held before.
    pub fn unknown_holds<'a>(&self, agents: impl IntoIterator<Item = &'a AgentFacts>) -> Vec<StackId> {
        let held: BTreeSet<StackId> =
            agents.into_iter().flat_map(|agent| agent.holds.iter().copied()).collect();
        held.into_iter().filter(|stack| !self.stacks.contains_key(stack)).collect()
    }

    /// Applies the current state and returns the affected agents: exactly those whose envelope changes, or
    /// whose permission to poll, and those that are asked to fetch an upgrade.
    pub fn apply(&mut self, changes: Changes) -> RoaringBitmap {
        let mut affected = RoaringBitmap::new();
        let mut released = BTreeSet::new();
        for agent in changes.deleted_agents {
            released.extend(self.remove_agent(agent));
        }
        for agent in changes.agents {
            let before = self.agent(agent.id);
            released.extend(before.iter().flat_map(|before| before.holds.iter().copied()));
            let changed = self.affected_by_agent(before, &agent);
            let slot = self.put_agent(agent);
            if changed {
                affected.insert(slot);
            }
        }
        if let Some(Rules { grants, unrestricted, windows, health_rules, upgrades }) = changes.rules {
            affected |= self.put_grants(grants, unrestricted);
            affected |= self.put_windows(windows);
            affected |= self.put_upgrades(upgrades);
            if self.health_rules != health_rules {
                self.health_rules = health_rules;
                affected |= self.by_label.everyone();
            }
        }
        for mut stack in changes.stacks {
            released.insert(stack.id);
            stack.grants = self.grants_of(&stack.project);
            stack.windows = Arc::clone(&self.windows);
            affected |= self.affected_by_stack(self.stacks.get(&stack.id), &stack);
            self.put_stack(stack);
        }
        released.into_iter().for_each(|stack| self.remove_if_unused(stack));
        affected
    }

    pub(super) fn slot(&self, agent: AgentId) -> Option<Slot> {
        self.slots.get(&agent).copied()
    }

    pub(super) fn at(&self, slot: Slot) -> &AgentFacts {
        &self.agents[slot as usize]
    }

    /// Returns the rank of the name, or where it would be inserted.
    fn rank_of(&self, name: &str) -> Result<usize, usize> {
        self.by_name.binary_search_by(|slot| self.at(*slot).name.as_str().cmp(name))
    }

    fn put_agent(&mut self, agent: AgentFacts) -> Slot {
        let Some(slot) = self.slot(agent.id) else {
            let rank = self.rank_of(&agent.name).unwrap_or_else(|rank| rank);
            let slot = self.place(agent);
            self.by_name.insert(rank, slot);
            self.register_agent(slot);
            self.index_agent(slot);
            return slot;
        };
        self.release_holds(slot);
        let before = &self.agents[slot as usize];
        self.by_label.remove(slot, &before.labels);
        let renamed = before.name != agent.name;
        if renamed {
            self.by_name.retain(|other| *other != slot);
        }
        self.agents[slot as usize] = agent;
        if renamed {
            let rank = self.rank_of(&self.at(slot).name).unwrap_or_else(|rank| rank);
            self.by_name.insert(rank, slot);
        }
        self.index_agent(slot);
        slot
    }

    /// Stores the facts of a new agent in a slot.
    fn place(&mut self, agent: AgentFacts) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.agents[slot as usize] = agent;
            return slot;
        }
        self.agents.push(agent);
        slot(self.agents.len() - 1)
    }

    /// Removes an agent that no longer exists. Returns the stacks that it held.
    fn remove_agent(&mut self, id: AgentId) -> Vec<StackId> {
        let Some(slot) = self.slots.remove(&id) else { return Vec::new() };
        self.release_holds(slot);
        let before = &mut self.agents[slot as usize];
        self.by_label.forget(slot, &before.labels);
        let held = std::mem::take(&mut before.holds);
        self.by_name.retain(|other| *other != slot);
        self.active.remove(slot);
        self.upgradable.remove(slot);
        self.slices[usize::from(fingerprints::slice(&id.0))].remove(slot);
        self.free.push(slot);
        held
    }

    fn release_holds(&mut self, slot: Slot) {
        for stack in &self.agents[slot as usize].holds {
            if self.holders.get_mut(stack).is_some_and(|set| set.remove(slot) && set.is_empty()) {
                self.holders.remove(stack);
            }
        }
    }

    /// Registers the id and slot of an agent, which never change.
    fn register_agent(&mut self, slot: Slot) {
        let id = self.at(slot).id;
        self.slots.insert(id, slot);
        self.random.resize(self.agents.len(), 0);
        self.random[slot as usize] = random_bits(id);
        self.slices.resize_with(256, RoaringBitmap::new);
        self.slices[usize::from(fingerprints::slice(&id.0))].insert(slot);
    }

    /// Indexes what may change about an agent, except its name.
    fn index_agent(&mut self, slot: Slot) {
        let agent = &mut self.agents[slot as usize];
        self.by_label.insert(slot, &mut agent.labels);
        if agent.status == AgentStatus::Active {
            self.active.insert(slot);
        } else {
            self.active.remove(slot);
        }
        if agent.upgrade().allowed_since.is_some() {
            self.upgradable.insert(slot);
        } else {
            self.upgradable.remove(slot);
        }
        for stack in &agent.holds {
            self.holders.entry(*stack).or_default().insert(slot);
        }
    }

    fn put_stack(&mut self, mut stack: StackFacts) {
        self.remove_stack(stack.id);
        stack.grants = self.grants_of(&stack.project);
        stack.windows = Arc::clone(&self.windows);
        if !stack.deleted {
            self.by_selector.insert(stack.id, stack.selectors.iter().map(|target| &target.selector));
            for target in &stack.targets {
                self.explicit.entry(target.agent).or_default().insert(stack.id);
            }
        }
        if stack.has_rollout() {
            self.rolling.insert(stack.id);
        }
        if !stack.suspensions.is_empty() {
            self.suspended.insert(stack.id);
        }
        self.stacks.insert(stack.id, stack);
    }

    fn remove_stack(&mut self, id: StackId) {
        let Some(before) = self.stacks.remove(&id) else { return };
        self.rolling.remove(&id);
        self.suspended.remove(&id);
        self.by_selector.remove(id, before.selectors.iter().map(|target| &target.selector));
        for target in &before.targets {
            if self.explicit.get_mut(&target.agent).is_some_and(|set| set.remove(&id) && set.is_empty()) {
                self.explicit.remove(&target.agent);
            }
        }
    }

    /// Removes a deleted stack that no agent holds any more.
    fn remove_if_unused(&mut self, id: StackId) {
        if self.stacks.get(&id).is_some_and(|stack| stack.deleted) && !self.holders.contains_key(&id) {
            self.remove_stack(id);
        }
    }

    /// Replaces all grants and returns the affected agents.
    fn put_grants(&mut self, grants: Vec<GrantFacts>, unrestricted: BTreeSet<String>) -> RoaringBitmap {
        let before = std::mem::replace(&mut self.grants, by_project(grants));
        let unrestricted_before = std::mem::replace(&mut self.unrestricted, unrestricted);
        let projects: BTreeSet<String> = before.keys().chain(self.grants.keys()).cloned().collect();
        let mut affected = RoaringBitmap::new();
        for project in projects {
            let before =
                before.get(&project).cloned().unwrap_or_else(|| no_grants(&project, &unrestricted_before));
            let after = self.grants_of(&project);
            if before != after {
                affected |= self.affected_by_grants(&project, &before, &after);
                let stacks = self.stacks.values_mut().filter(|stack| stack.project == project);
                stacks.for_each(|stack| stack.grants = Arc::clone(&after));
            }
        }
        affected
    }

    /// Replaces all windows and returns the affected agents.
    fn put_windows(&mut self, windows: Windows) -> RoaringBitmap {
        if *self.windows == windows {
            return RoaringBitmap::new();
        }
        let after = Arc::new(windows);
        let affected = self.affected_by_windows(&after);
        self.stacks.values_mut().for_each(|stack| stack.windows = Arc::clone(&after));
        self.windows = after;
        affected
    }

    fn grants_of(&mut self, project: &str) -> Arc<ProjectGrants> {
        if let Some(known) = self.grants.get(project) {
            return Arc::clone(known);
        }
        let none = no_grants(project, &self.unrestricted);
        self.grants.insert(project.to_owned(), Arc::clone(&none));
        none
    }
}

fn slot(at: usize) -> Slot {
    Slot::try_from(at).expect("there are fewer than four billion agents")
}

fn no_grants(project: &str, unrestricted: &BTreeSet<String>) -> Arc<ProjectGrants> {
    Arc::new(ProjectGrants::new(!unrestricted.contains(project), Vec::new()))
}

fn by_project(grants: Vec<GrantFacts>) -> HashMap<String, Arc<ProjectGrants>> {
    let mut projects: HashMap<String, Vec<GrantFacts>> = HashMap::new();
    for grant in grants {
        projects.entry(grant.project.clone()).or_default().push(grant);
    }
    let grants = |(project, grants): (String, Vec<GrantFacts>)| {
        // Whoever has a grant is limited to its grants.
        (project, Arc::new(ProjectGrants::new(true, grants)))
    };
    projects.into_iter().map(grants).collect()
}
