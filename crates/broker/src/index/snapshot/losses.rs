//! The losses that a change would cause: pairs of a stack and an agent that it reaches now and would no longer reach.
//! Nothing is changed here.

use std::collections::BTreeSet;

use brokkr_api::page::Sort;
use brokkr_api::{AgentId, Selector, StackId};
use jiff::Timestamp;
use roaring::RoaringBitmap;

use super::Snapshot;
use crate::domain::facts::{AgentFacts, ExplicitTarget, SelectorTarget, StackFacts};
use crate::domain::grants::ProjectGrants;
use crate::domain::labels::LabelSet;
use crate::domain::rollout::widening::Gain;
use crate::domain::targeting::reaches;

/// The number of pairs shown.
const EXAMPLES: usize = 5;

/// Pairs of a stack and an agent that would be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub pairs: u64,
    /// Some of them: the names of stack and agent.
    pub examples: Vec<(String, String)>,
}

/// The effect of other targets on a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retargeting {
    pub gained: RoaringBitmap,
    pub kept: RoaringBitmap,
    pub lost: RoaringBitmap,
}

impl Snapshot {
    /// Returns the losses if the agent gets other labels.
    #[must_use]
    pub fn lost_by_labels(&self, agent: &AgentFacts, labels: LabelSet) -> Losses {
        let after = AgentFacts { labels, ..agent.clone() };
        let mut seen: BTreeSet<StackId> = BTreeSet::new();
        let mut losses = Losses::default();
        for stack in self.candidates(agent) {
            if seen.insert(stack.id) && reaches(agent, stack) && !reaches(&after, stack) {
                losses.add(stack, 1, || vec![agent]);
            }
        }
        losses
    }

    /// Returns the losses if the stack gets other targets. Agents that are named now and would not be any
    /// more are not counted: leaving out a name is deliberate.
    #[must_use]
    pub fn lost_by_targets(&self, stack: &StackFacts, agents: &[AgentId], selectors: &[Selector]) -> Losses {
        let selected = self.selected(stack) & &*self.covered(&stack.grants);
        let lost = selected - self.reach(&with_targets(stack, agents, selectors));
        let mut losses = Losses::default();
        losses.add(stack, lost.len(), || self.page(&lost, Sort::Name, None, EXAMPLES));
        losses
    }

    /// Returns the losses if the project gets other grants.
    #[must_use]
    pub fn lost_by_grants(&self, project: &str, after: &ProjectGrants) -> Losses {
        let before = self.project_grants(project);
        let lost = self.covered(&before).into_owned() - &*self.covered(after);
        let mut losses = Losses::default();
        if lost.is_empty() {
            return losses;
        }
        for stack in self.stacks.values().filter(|stack| stack.project == project) {
            let lost = self.targeted(stack) & &lost;
            losses.add(stack, lost.len(), || self.page(&lost, Sort::Name, None, EXAMPLES));
        }
        losses
    }

    /// Returns the agents that the stack would gain, keep and lose.
    #[must_use]
    pub fn retargeting(&self, stack: &StackFacts, agents: &[AgentId], selectors: &[Selector]) -> Retargeting {
        let before = self.reach(stack);
        let after = self.reach(&with_targets(stack, agents, selectors));
        Retargeting { gained: &after - &before, kept: &before & &after, lost: before - after }
    }

    /// Returns how many agents the stack would gain.
    #[must_use]
    pub fn gain(&self, stack: &StackFacts, agents: &[AgentId], selectors: &[Selector]) -> Gain {
        let after = self.reach(&with_targets(stack, agents, selectors));
        let new = &after - self.reach(stack);
        let waiting = stack.widening().map(|widening| {
            let had = &widening.had;
            &after - self.reach(&with_targets(stack, &had.agents, &had.selectors))
        });
        let waiting = waiting.as_ref().unwrap_or(&new);
        Gain { members: after.len(), new: new.len(), waiting: waiting.len() }
    }
}

impl Losses {
    fn add<'a>(&mut self, stack: &StackFacts, pairs: u64, agents: impl FnOnce() -> Vec<&'a AgentFacts>) {
        self.pairs += pairs;
        if pairs == 0 || self.examples.len() >= EXAMPLES {
            return;
        }
        let examples = agents().into_iter().map(|agent| (stack.name.clone(), agent.name.clone()));
        self.examples.extend(examples);
        self.examples.truncate(EXAMPLES);
    }
}

fn with_targets(stack: &StackFacts, agents: &[AgentId], selectors: &[Selector]) -> StackFacts {
    // The time of a target does not affect its reach.
    let since = Timestamp::UNIX_EPOCH;
    let mut after = stack.clone();
    after.targets = agents.iter().map(|agent| ExplicitTarget { agent: *agent, since }).collect();
    after.targets.sort_unstable_by_key(|target| target.agent);
    after.selectors =
        selectors.iter().map(|selector| SelectorTarget { selector: selector.clone(), since }).collect();
    after
}
