//! Agents and stacks, with the inverted indexes that make a poll a lookup.

use std::collections::{BTreeSet, HashMap, HashSet};

use brokkr_api::{AgentId, StackId};

use super::labels::{AgentsByLabel, StacksBySelector};
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::targeting::reaches;

/// How things are now, for everything whose doorbell rang.
#[derive(Debug, Default)]
pub struct Changes {
    pub agents: Vec<AgentFacts>,
    pub stacks: Vec<StackFacts>,
}

#[derive(Debug, Default)]
pub struct Picture {
    agents: HashMap<AgentId, AgentFacts>,
    names: HashMap<String, AgentId>,
    stacks: HashMap<StackId, StackFacts>,
    by_label: AgentsByLabel,
    by_selector: StacksBySelector,
    explicit: HashMap<AgentId, BTreeSet<StackId>>,
    holders: HashMap<StackId, BTreeSet<AgentId>>,
}

impl Picture {
    #[must_use]
    pub fn new(changes: Changes) -> Self {
        let mut picture = Self::default();
        // Whom it concerns is not asked at the start: it is everybody, once.
        changes.agents.into_iter().for_each(|agent| picture.put_agent(agent));
        changes.stacks.into_iter().for_each(|stack| picture.put_stack(stack));
        picture
    }

    pub fn agent(&self, id: AgentId) -> Option<&AgentFacts> {
        self.agents.get(&id)
    }

    pub fn agent_named(&self, name: &str) -> Option<&AgentFacts> {
        self.agents.get(self.names.get(name)?)
    }

    pub fn stack(&self, id: StackId) -> Option<&StackFacts> {
        self.stacks.get(&id)
    }

    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    /// Every stack that may reach the agent, and every known one that it holds. May repeat.
    pub fn candidates<'a>(&'a self, agent: &'a AgentFacts) -> impl Iterator<Item = &'a StackFacts> {
        let explicit = self.explicit.get(&agent.id).into_iter().flatten().copied();
        explicit
            .chain(self.by_selector.candidates(&agent.labels))
            .chain(agent.holds.iter().copied())
            .filter_map(|stack| self.stacks.get(&stack))
    }

    /// Every agent that the stack reaches.
    pub fn reached(&self, stack: &StackFacts) -> Vec<&AgentFacts> {
        if stack.deleted {
            return Vec::new();
        }
        let mut agents: HashMap<AgentId, &AgentFacts> = HashMap::new();
        let mut take = |agent: &'_ AgentId| {
            if let Some(facts) = self.agents.get(agent)
                && reaches(facts, stack)
            {
                agents.insert(facts.id, facts);
            }
        };
        stack.targets.iter().for_each(|target| take(&target.agent));
        for target in &stack.selectors {
            match self.by_label.candidates(&target.selector) {
                Some(candidates) => candidates.iter().for_each(&mut take),
                // `*`, or only negative terms: it really is about everybody.
                None => self.agents.keys().for_each(&mut take),
            }
        }
        agents.into_values().collect()
    }

    pub fn holders(&self, stack: StackId) -> impl Iterator<Item = &AgentFacts> {
        self.holders.get(&stack).into_iter().flatten().filter_map(|agent| self.agents.get(agent))
    }

    /// Held stacks that are not here: deleted ones that nobody held until now, or unknown ones.
    pub fn unknown_holds<'a>(&self, agents: impl IntoIterator<Item = &'a AgentFacts>) -> Vec<StackId> {
        let held: BTreeSet<StackId> =
            agents.into_iter().flat_map(|agent| agent.holds.iter().copied()).collect();
        held.into_iter().filter(|stack| !self.stacks.contains_key(stack)).collect()
    }

    /// Takes in how things are now, and tells whom that concerns, before or after: their answer, or their
    /// right to ask, may be another.
    pub fn apply(&mut self, changes: Changes) -> HashSet<AgentId> {
        let mut concerned = HashSet::new();
        let mut let_go = BTreeSet::new();
        for agent in changes.agents {
            concerned.insert(agent.id);
            if let Some(before) = self.agents.get(&agent.id) {
                let_go.extend(before.holds.iter().copied());
            }
            self.put_agent(agent);
        }
        for stack in changes.stacks {
            let_go.insert(stack.id);
            if self.stacks.get(&stack.id) == Some(&stack) {
                continue;
            }
            let holders = self.holders.get(&stack.id).into_iter().flatten().copied();
            concerned.extend(holders);
            if let Some(before) = self.stacks.get(&stack.id) {
                concerned.extend(self.reached(before).iter().map(|agent| agent.id));
            }
            concerned.extend(self.reached(&stack).iter().map(|agent| agent.id));
            self.put_stack(stack);
        }
        let_go.into_iter().for_each(|stack| self.forget_if_over(stack));
        concerned
    }

    fn put_agent(&mut self, agent: AgentFacts) {
        if let Some(before) = self.agents.remove(&agent.id) {
            self.by_label.remove(before.id, &before.labels);
            self.names.remove(&before.name);
            for stack in &before.holds {
                if self.holders.get_mut(stack).is_some_and(|set| set.remove(&before.id) && set.is_empty()) {
                    self.holders.remove(stack);
                }
            }
        }
        self.by_label.insert(agent.id, &agent.labels);
        self.names.insert(agent.name.clone(), agent.id);
        for stack in &agent.holds {
            self.holders.entry(*stack).or_default().insert(agent.id);
        }
        self.agents.insert(agent.id, agent);
    }

    fn put_stack(&mut self, stack: StackFacts) {
        self.remove_stack(stack.id);
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
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use brokkr_api::agents::AgentStatus;
    use brokkr_api::ids::Checksum;
    use brokkr_api::{InstallationId, SequenceId};
    use jiff::Timestamp;

    use super::*;
    use crate::domain::envelope::{answer, envelope};
    use crate::domain::facts::{ObjectFacts, SelectorTarget, SessionFacts};

    fn agent(number: usize) -> AgentFacts {
        let labels = [("region", number % 50), ("site", number % 5_000)];
        AgentFacts {
            id: AgentId::generate(),
            name: format!("agent-{number}"),
            status: AgentStatus::Active,
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
            labels_changed_at: Timestamp::UNIX_EPOCH,
            public_key: vec![0; 32],
            session: SessionFacts::default(),
            holds: Vec::new(),
            holds_digest: Checksum([0; 32]),
        }
    }

    fn stack(number: usize, sequence: i64) -> StackFacts {
        let object = ObjectFacts {
            sequence_id: SequenceId(sequence),
            checksum: Checksum([1; 32]),
            parsed_digest: Checksum([2; 32]),
            is_deletion_marker: false,
            resources: 1,
            published_at: Timestamp::UNIX_EPOCH,
        };
        let mut stack = StackFacts::new("default".into(), StackId::generate(), format!("stack-{number}"))
            .with_newest(Some(object));
        let selector = format!("site={},region", number % 5_000).parse().expect("a selector");
        stack.selectors.push(SelectorTarget { selector, since: Timestamp::UNIX_EPOCH });
        stack
    }

    /// Changes `rounds` stacks one by one, and tells the time of each change and of each answer after it.
    fn measure(agents: usize, stacks: usize, rounds: usize) {
        let started = Instant::now();
        let facts: Vec<StackFacts> = (0..stacks).map(|number| stack(number, number as i64)).collect();
        let changed: Vec<StackFacts> = facts.iter().take(rounds).cloned().collect();
        let mut picture = Picture::new(Changes { agents: (0..agents).map(agent).collect(), stacks: facts });
        let loaded = started.elapsed();
        let started = Instant::now();
        let mut concerned = HashSet::new();
        for (number, facts) in changed.into_iter().enumerate() {
            let id = facts.id;
            let mut facts = stack(number, (stacks + number) as i64);
            facts.id = id;
            let told = picture.apply(Changes { agents: Vec::new(), stacks: vec![facts] });
            assert_eq!(told.len(), agents / 5_000, "only the agents of one site");
            concerned.extend(told);
        }
        let apply = started.elapsed() / u32::try_from(rounds).expect("few");
        let started = Instant::now();
        for id in &concerned {
            let facts = picture.agent(*id).expect("it is there");
            let bytes = answer(&envelope(InstallationId(id.0), facts, picture.candidates(facts))).bytes;
            assert!(bytes.len() > 100);
        }
        let answers = started.elapsed() / u32::try_from(concerned.len()).expect("few");
        println!(
            "{agents} agents, {stacks} stacks: loaded in {loaded:?}, a change {apply:?}, an answer {answers:?}"
        );
    }

    #[test]
    fn a_change_looks_only_at_those_it_concerns() {
        measure(10_000, 5_000, 100);
    }

    /// The sizes of the design, in memory: what does not scale shows here, long before there is such a fleet.
    #[test]
    fn a_change_among_a_million_agents_and_a_hundred_thousand_stacks_looks_only_at_those_it_concerns() {
        measure(1_000_000, 100_000, 20);
    }
}
