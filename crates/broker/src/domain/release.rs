//! Which agents a new version is released to while it is rolled out.
//!
//! A rollout puts the agents in a random but fixed order, and raises a mark: agents up to the mark get the new version, all
//! others the version that everybody gets (the base). So nothing is stored for a single agent, every replica gives the same
//! answer, and an agent that joins is on the right side of the mark.

use brokkr_api::{AgentId, Selector, SequenceId, StackId};

use super::facts::{AgentFacts, ObjectFacts, StackFacts};

/// A version that not every agent gets: it is being rolled out, or its rollout was stopped or superseded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Release {
    pub object: ObjectFacts,
    /// The order of the agents.
    pub seed: u64,
    /// Whether agents get the version. If not, they get the base: agents that have begun the version keep it, all
    /// others never begin it.
    pub open: bool,
    /// An agent gets the version if one of these releases it.
    pub clauses: Vec<Clause>,
    /// The number of changes of the rollout, to compare this with the database.
    pub revision: i64,
}

/// Releases a version to the agents up to a mark.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Clause {
    /// Only agents with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// The last place to which the version is released; it only grows. Zero releases it to no agent.
    pub upto: u64,
}

impl Release {
    /// Returns whether the version is or was released to the agent.
    #[must_use]
    pub fn includes(&self, agent: &AgentFacts) -> bool {
        let place = place(agent.id, self.seed);
        self.clauses.iter().any(|clause| {
            place <= clause.upto && clause.selector.as_ref().is_none_or(|selector| agent.matches(selector))
        })
    }
}

/// Returns the place of an agent in the order of a rollout; never zero.
#[must_use]
pub fn place(agent: AgentId, seed: u64) -> u64 {
    // The first half of an id is mostly a time; the second half is random.
    let (_, random) = agent.0.as_u64_pair();
    mix(random ^ seed).max(1)
}

/// Returns the order of the agents for a rollout over this base. A version that supersedes another one keeps the order, so that
/// the agents that have begun that one come first; after a completed rollout, other agents come first.
#[must_use]
pub fn seed(stack: StackId, base: Option<SequenceId>) -> u64 {
    let (_, random) = stack.0.as_u64_pair();
    // Half of the range, because the database has no unsigned integers.
    mix(random ^ base.map_or(0, |base| base.0.cast_unsigned())) >> 1
}

/// The finalizer of SplitMix64.
fn mix(bits: u64) -> u64 {
    let mut mixed = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the version of the stack that this agent should have.
///
/// No other function decides which version an agent gets.
#[must_use]
pub fn released_to<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    let release = stack.releases.last().filter(|release| release.open && release.includes(agent));
    release.map(|release| &release.object).or(stack.base.as_ref())
}

/// Returns whether this version is or was ever released to the agent, if the stack targets or targeted it. It stays true when
/// the version is withdrawn: an agent that has begun it goes on.
#[must_use]
pub fn was_released_to(agent: &AgentFacts, stack: &StackFacts, version: SequenceId) -> bool {
    stack.base.as_ref().is_some_and(|base| version <= base.sequence_id)
        || stack
            .releases
            .iter()
            .any(|release| release.object.sequence_id == version && release.includes(agent))
}

/// Returns whether the last thing that was released to the agent is a deletion. If that is withdrawn, an agent that has removed the
/// stack does not get it back before there is a newer version.
#[must_use]
pub fn was_deleted_from(agent: &AgentFacts, stack: &StackFacts) -> bool {
    let last = stack.releases.iter().rev().find(|release| release.includes(agent));
    last.is_some_and(|release| release.object.is_deletion_marker)
}

/// Returns the newest version that is or was released to the agent.
#[must_use]
pub fn last_released_to<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    let released = stack.releases.iter().rev().find(|release| release.includes(agent));
    released.map(|release| &release.object).or(stack.base.as_ref())
}

/// Returns the newest version with content that is or was released to the agent: what it keeps if nothing is released to it now. A
/// deletion that was withdrawn is not carried out.
#[must_use]
pub fn kept_by<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    let versions = stack.releases.iter().rev().filter(|release| !release.object.is_deletion_marker);
    let released = versions.into_iter().find(|release| release.includes(agent));
    released.map(|release| &release.object).or(stack.base.as_ref())
}

#[cfg(test)]
mod tests;
