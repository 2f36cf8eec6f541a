//! Which agents a new version is released to while it is rolled out.
//!
//! A rollout puts the agents in a random but fixed order, and raises a mark: agents up to the mark get the new version, all
//! others the version that everybody gets (the base). So nothing is stored for a single agent, every replica gives the same
//! answer, and an agent that joins is on the right side of the mark.

mod widening;

use brokkr_api::{AgentId, Selector, SequenceId, StackId};

use super::facts::{AgentFacts, ObjectFacts, StackFacts};
use super::targeting::targeted_before;
use super::windows::{Lanes, Windows};
pub use widening::{EarlierTargets, Widening};

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
    /// The windows when the rollout began: they decide the lanes. If others did later, a window that is deleted would release the
    /// version to all of its agents at once. Empty if the rollout is urgent.
    #[serde(default)]
    pub windows: Windows,
}

/// Releases a version to the agents up to a mark.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Clause {
    /// Only agents with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Only agents of these lanes; absent: only agents that may begin at any time.
    #[serde(default, skip_serializing_if = "Lanes::is_none")]
    pub lanes: Lanes,
    /// The last place to which the version is released; it only grows. Zero releases it to no agent.
    pub upto: u64,
}

impl Release {
    /// Returns the mark up to which every agent gets the version, if nothing but their places decides that.
    #[must_use]
    pub fn only_mark(&self) -> Option<u64> {
        only_mark(&self.clauses)
    }

    /// Returns whether the version is or was released to the agent, or to agents in its place of other lanes.
    #[must_use]
    pub fn includes(&self, agent: &AgentFacts) -> bool {
        self.clauses_for(agent).next().is_some()
    }

    /// Returns whether the agent gets the version.
    fn reaches(&self, agent: &AgentFacts, stack: &StackFacts) -> bool {
        if !self.open || !self.includes(agent) {
            return false;
        }
        let lanes = self.lanes(agent, stack);
        self.clauses_for(agent).any(|clause| clause.lanes == lanes)
    }

    /// Returns the lanes of the agent.
    #[must_use]
    pub fn lanes(&self, agent: &AgentFacts, stack: &StackFacts) -> Lanes {
        let begun = self.windows.lane(agent, &stack.project);
        // As in the envelope: an agent that the stack has gained later does wait for its windows.
        let is_urgent = self.object.is_urgent && targeted_before(agent, stack, self.object.published_at);
        let now = if is_urgent { begun } else { stack.windows.lane(agent, &stack.project) };
        Lanes { begun, now }
    }

    fn clauses_for(&self, agent: &AgentFacts) -> impl Iterator<Item = &Clause> {
        let place = place(agent.id, self.seed);
        self.clauses.iter().filter(move |clause| clause.includes(agent, place))
    }
}

/// Returns the mark up to which these clauses release a version, if nothing but the places of the agents decides that.
#[must_use]
pub fn only_mark(clauses: &[Clause]) -> Option<u64> {
    match clauses {
        [] => Some(0),
        [Clause { selector: None, lanes, upto }] if lanes.is_none() => Some(*upto),
        _ => None,
    }
}

impl Clause {
    /// Returns whether the agent, which has this place, is up to the mark, in these lanes or others.
    pub(super) fn includes(&self, agent: &AgentFacts, place: u64) -> bool {
        place <= self.upto && self.selector.as_ref().is_none_or(|selector| agent.matches(selector))
    }
}

/// Returns the place of an agent in the order of a rollout; never zero.
#[must_use]
pub fn place(agent: AgentId, seed: u64) -> u64 {
    place_of(random_bits(agent), seed)
}

/// Returns the part of an agent's id that determines its place.
#[must_use]
pub fn random_bits(agent: AgentId) -> u64 {
    // The first half of an id is mostly a time; the second half is random.
    agent.0.as_u64_pair().1
}

/// Returns the place of an agent with these random bits.
#[must_use]
pub fn place_of(random: u64, seed: u64) -> u64 {
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
pub(super) fn mix(bits: u64) -> u64 {
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
    if let Some(release) = stack.releases.last().filter(|release| release.reaches(agent, stack)) {
        return Some(&release.object);
    }
    stack.base.as_ref().filter(|_| stack.widening().is_none_or(|widening| widening.reaches(agent, stack)))
}

/// Returns the base, if it is or was released to the agent.
fn base_released_to<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    stack.base.as_ref().filter(|_| stack.widening().is_none_or(|widening| widening.includes(agent)))
}

/// Returns whether this version is or was ever released to the agent, if the stack targets or targeted it. It stays true when
/// the version is withdrawn: an agent that has begun it goes on.
#[must_use]
pub fn was_released_to(agent: &AgentFacts, stack: &StackFacts, version: SequenceId) -> bool {
    stack.base.as_ref().is_some_and(|base| version < base.sequence_id)
        || base_released_to(agent, stack).is_some_and(|base| base.sequence_id == version)
        || stack
            .releases
            .iter()
            .any(|release| release.object.sequence_id == version && release.includes(agent))
}

/// Returns what was released to the agent, newest first, whether or not it is withdrawn.
fn releases_to<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> impl Iterator<Item = &'a ObjectFacts> {
    stack.releases.iter().rev().filter(|release| release.includes(agent)).map(|release| &release.object)
}

/// Returns whether the last thing that was released to the agent is a deletion. If that is withdrawn, an agent that has removed the
/// stack does not get it back before there is a newer version.
#[must_use]
pub fn was_deleted_from(agent: &AgentFacts, stack: &StackFacts) -> bool {
    releases_to(agent, stack).next().is_some_and(|object| object.is_deletion_marker)
}

/// Returns the newest version that is or was released to the agent.
#[must_use]
pub fn last_released_to<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    releases_to(agent, stack).next().or_else(|| base_released_to(agent, stack))
}

/// Returns the newest version with content that an agent that holds the stack keeps, if nothing is released to it now. A deletion
/// that was withdrawn is not carried out.
#[must_use]
pub fn kept_by<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    releases_to(agent, stack).find(|object| !object.is_deletion_marker).or(stack.base.as_ref())
}

#[cfg(test)]
mod tests;
