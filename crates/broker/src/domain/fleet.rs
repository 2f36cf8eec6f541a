//! Views of a fleet: how many agents have what they should have, computed from sets of agents and one byte for each stack and agent.
//!
//! | module    | contents                                                          |
//! |-----------|-------------------------------------------------------------------|
//! | `row`     | the bytes of one stack: what each agent has last reported         |
//! | `matrix`  | agents by stack and by the value of a label                       |
//! | `summary` | each agent once, by its worst stack                               |

pub mod matrix;
pub mod row;
pub mod summary;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use brokkr_api::envelope::Removal;
use brokkr_api::report::Transition;
use brokkr_api::status::State;
use brokkr_api::{AgentId, SequenceId, StackId};
use roaring::RoaringBitmap;

use super::status::state;
use row::OutcomeRow;

/// The outcome of the last report of an agent about a stack: three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied = 1,
    Healthy,
    Degraded,
    Failed,
    Blocked,
    Removed,
    Unknown,
}

impl Outcome {
    #[must_use]
    pub fn of(transition: &Transition) -> Self {
        match transition {
            Transition::Applied => Self::Applied,
            // As in `status`: these do not change the state.
            Transition::Healthy
            | Transition::Repaired
            | Transition::Drifted
            | Transition::Suspended
            | Transition::Resumed => Self::Healthy,
            Transition::Degraded => Self::Degraded,
            Transition::Failed => Self::Failed,
            Transition::Blocked => Self::Blocked,
            Transition::Removed => Self::Removed,
            Transition::Other(_) => Self::Unknown,
        }
    }

    /// Returns the outcome with these bits; none for zero, which means that nothing was reported.
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => return None,
            1 => Self::Applied,
            2 => Self::Healthy,
            3 => Self::Degraded,
            4 => Self::Failed,
            5 => Self::Blocked,
            6 => Self::Removed,
            _ => Self::Unknown,
        })
    }

    /// Returns a transition with this outcome.
    fn transition(self) -> Transition {
        match self {
            Self::Applied => Transition::Applied,
            Self::Healthy => Transition::Healthy,
            Self::Degraded => Transition::Degraded,
            Self::Failed => Transition::Failed,
            Self::Blocked => Transition::Blocked,
            Self::Removed => Transition::Removed,
            Self::Unknown => Transition::Other(String::new()),
        }
    }
}

/// What an agent has last reported about a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    pub version: SequenceId,
    pub outcome: Outcome,
}

/// The same as it is stored; none if the agent has reported nothing, or what it reported was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOutcome {
    pub stack: StackId,
    pub agent: AgentId,
    pub reported: Option<Reported>,
}

/// What agents should have of a stack.
pub type Target = Option<(SequenceId, Option<Removal>)>;

/// Agents that should have the same of a stack.
#[derive(Clone, Debug)]
pub struct TargetGroup {
    pub agents: RoaringBitmap,
    pub target: Target,
}

/// Adds agents to the group with this target.
pub fn add_to_group(groups: &mut Vec<TargetGroup>, target: Target, agents: RoaringBitmap) {
    // There are as many groups as versions in a rollout.
    match groups.iter_mut().find(|group| group.target == target) {
        Some(group) => group.agents |= agents,
        None if agents.is_empty() => {}
        None => groups.push(TargetGroup { agents, target }),
    }
}

/// A stack as the views need it: no agent is in two groups.
#[derive(Clone, Debug)]
pub struct StackView {
    pub id: StackId,
    pub name: String,
    pub newest: Option<SequenceId>,
    pub groups: Vec<TargetGroup>,
    pub row: Arc<OutcomeRow>,
}

/// Whether an agent has what it should have of a stack, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    OnIntent,
    Unknown,
    Pending,
    Blocked,
    Failing,
}

/// Returns the state of a stack on an agent that should have this and has reported that.
#[must_use]
pub fn state_of(target: Target, reported: Option<Reported>) -> State {
    let transition = reported.map(|reported| reported.outcome.transition());
    state(target, reported.map(|reported| reported.version).zip(transition.as_ref()))
}

#[must_use]
pub fn condition(target: Target, reported: Option<Reported>) -> Condition {
    match state_of(target, reported) {
        // The agent should have the stack, or should have removed it.
        State::Healthy | State::Removed => Condition::OnIntent,
        State::Pending | State::Applied | State::Removing => Condition::Pending,
        State::Degraded | State::Failed => Condition::Failing,
        State::Blocked => Condition::Blocked,
        State::Unknown => Condition::Unknown,
    }
}
