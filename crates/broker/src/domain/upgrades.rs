//! Upgrades of agents: which one an agent is offered, and what its reports count as in the rollout of it.
//!
//! A rollout raises a mark in a random order of the agents, as for the versions of stacks: `release` explains it. What has begun is
//! never withdrawn: each agent ends by itself in a version that works.
//!
//! | module   | contents                                                                     |
//! |----------|------------------------------------------------------------------------------|
//! | `report` | which reports of an agent are news, and what they count as                   |
//! | `wanted` | what an admin may ask for, and which upgrades a new one takes the place of   |

pub mod report;
#[cfg(test)]
mod tests;
pub mod wanted;

use brokkr_api::agents::AgentStatus;
use brokkr_api::rollouts::RolloutState;
use brokkr_api::windows::Opening;
use brokkr_api::{Selector, UpgradeId};
use jiff::Timestamp;

use super::facts::AgentFacts;
use super::release::{Clause, mix, place};
use super::windows::{Lanes, Windows};

/// The windows of projects do not hold for upgrades: no project has this name.
const NO_PROJECT: &str = "";

/// An upgrade, as far as it decides what agents are offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeFacts {
    pub id: UpgradeId,
    pub image: String,
    pub version: String,
    /// Only agents with these labels.
    pub selector: Option<Selector>,
    /// The order of the agents.
    pub seed: u64,
    pub state: RolloutState,
    /// An agent is offered the upgrade if one of these releases it; once it is completed, every agent is.
    pub clauses: Vec<Clause>,
    /// The number of changes of the rollout, to compare this with the database.
    pub revision: i64,
    /// The windows of the installation when the rollout began: they decide the lanes.
    pub windows: Windows,
}

impl UpgradeFacts {
    /// Returns whether steps of the rollout may follow by themselves.
    #[must_use]
    pub fn is_rolling(&self) -> bool {
        matches!(self.state, RolloutState::Running | RolloutState::Soaking | RolloutState::Gated)
    }

    /// Returns whether the upgrade is for agents with these labels.
    #[must_use]
    pub fn selects(&self, agent: &AgentFacts) -> bool {
        self.selector.as_ref().is_none_or(|selector| agent.matches(selector))
    }

    /// Returns whether the upgrade is or was offered to the agent, or to agents in its place of other lanes.
    #[must_use]
    pub fn includes(&self, agent: &AgentFacts) -> bool {
        self.selects(agent)
            && (self.state == RolloutState::Completed || self.clauses_for(agent).next().is_some())
    }

    /// Returns whether the upgrade is offered to the agent, if that allows it.
    #[must_use]
    pub fn reaches(&self, agent: &AgentFacts, windows: &Windows) -> bool {
        if !self.selects(agent) {
            return false;
        }
        let lanes = || self.lanes(agent, windows);
        match self.state {
            RolloutState::Completed => true,
            _ if self.is_rolling() => self.clauses_for(agent).any(|clause| clause.lanes == lanes()),
            _ => false,
        }
    }

    /// Returns the lanes of the agent, with the windows of now.
    #[must_use]
    pub fn lanes(&self, agent: &AgentFacts, windows: &Windows) -> Lanes {
        Lanes { begun: self.windows.lane(agent, NO_PROJECT), now: windows.lane(agent, NO_PROJECT) }
    }

    fn clauses_for(&self, agent: &AgentFacts) -> impl Iterator<Item = &Clause> {
        let place = place(agent.id, self.seed);
        self.clauses.iter().filter(move |clause| clause.includes(agent, place))
    }
}

/// Returns the upgrade that the agent should have: the newest that is released to it.
///
/// No other function decides what an agent is offered.
#[must_use]
pub fn target<'a>(
    agent: &AgentFacts,
    upgrades: &'a [UpgradeFacts],
    windows: &Windows,
) -> Option<&'a UpgradeFacts> {
    let upgrade = agent.upgrade();
    if agent.status != AgentStatus::Active || upgrade.allowed_since.is_none() {
        return None;
    }
    // An agent that has begun a newer one, which was withdrawn since, does not go back.
    let follows = |one: &&UpgradeFacts| upgrade.reported.is_none_or(|reported| reported <= one.id);
    upgrades.iter().rev().filter(follows).find(|one| one.reaches(agent, windows))
}

/// Returns the upgrade that the agent should have, and has not ended.
#[must_use]
pub fn offered<'a>(
    agent: &AgentFacts,
    upgrades: &'a [UpgradeFacts],
    windows: &Windows,
) -> Option<&'a UpgradeFacts> {
    let facts = agent.upgrade();
    let is_open = |one: &&UpgradeFacts| facts.reported != Some(one.id) || !facts.has_ended;
    target(agent, upgrades, windows).filter(is_open)
}

/// Returns the upgrade that the agent should have, and has not begun. An agent that has begun is not asked again: its polls would not
/// wait.
#[must_use]
pub fn wanted<'a>(
    agent: &AgentFacts,
    upgrades: &'a [UpgradeFacts],
    windows: &Windows,
) -> Option<&'a UpgradeFacts> {
    target(agent, upgrades, windows).filter(|one| agent.upgrade().reported != Some(one.id))
}

/// Returns whether the agent may begin an upgrade now: its windows and freezes hold for upgrades as for versions.
#[must_use]
pub fn opening(agent: &AgentFacts, windows: &Windows, now: Timestamp) -> Opening {
    let schedule = windows.schedule(agent, NO_PROJECT);
    schedule.map_or(Opening::Open { since: None }, |schedule| schedule.at(now))
}

/// Returns the order of the agents for an upgrade after this completed one. As for stacks, an upgrade that supersedes another one keeps
/// the order, and after a completed one, other agents come first.
#[must_use]
pub fn seed(completed: Option<UpgradeId>) -> u64 {
    // Half of the range, because the database has no unsigned integers.
    mix(completed.map_or(0, |id| id.0.cast_unsigned())) >> 1
}
