//! The release of the base to agents that a stack has gained.
//!
//! Other targets may add many agents at once. These get the version that the others have in waves, too: it may not work in their
//! clusters. The agents that the targets named or selected before are not concerned.

use brokkr_api::{AgentId, Selector, SequenceId};

use super::{Clause, Release, place};
use crate::domain::facts::{AgentFacts, StackFacts};

/// A rollout of the base to the agents that were not targets before.
///
/// It stays when it is stopped or superseded, until there is another base: otherwise every agent would get the base at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    /// The sequence id of the rollout.
    pub key: SequenceId,
    /// Its object is the base. If it is not open, agents that have begun the base keep it, and others never begin it.
    pub release: Release,
    pub had: EarlierTargets,
    /// To which agents earlier rollouts of this kind have released the base. They had the same order.
    pub earlier: Vec<Clause>,
}

/// The targets of a stack before it was widened.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct EarlierTargets {
    /// Sorted.
    pub agents: Vec<AgentId>,
    pub selectors: Vec<Selector>,
}

impl EarlierTargets {
    /// Returns whether the agent was a target, or would have been one with its present labels.
    #[must_use]
    pub fn include(&self, agent: &AgentFacts) -> bool {
        self.agents.binary_search(&agent.id).is_ok()
            || self.selectors.iter().any(|selector| agent.matches(selector))
    }
}

impl Widening {
    /// Returns whether the agent gets the base.
    #[must_use]
    pub fn reaches(&self, agent: &AgentFacts, stack: &StackFacts) -> bool {
        self.had.include(agent) || self.release.reaches(agent, stack)
    }

    /// Returns whether the base is or was released to the agent.
    #[must_use]
    pub fn includes(&self, agent: &AgentFacts) -> bool {
        let place = place(agent.id, self.release.seed);
        self.had.include(agent)
            || self.release.includes(agent)
            || self.earlier.iter().any(|clause| clause.includes(agent, place))
    }
}
