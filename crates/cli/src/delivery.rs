//! Whether a version is on every agent, or a deletion is complete: decided from the status rows, without I/O.
//!
//! A wait is for one sequence id. Reports about an earlier version do not count, nor does a replica that does not know the
//! submission yet.

use brokkr_api::SequenceId;
use brokkr_api::status::{StackStatus, State};

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every targeted agent has written this version or a newer one.
    Applied(SequenceId),
    /// Every targeted agent has this version or a newer one, healthy.
    Delivered(SequenceId),
    /// Every agent that held the stack has reported it gone.
    Removed(SequenceId),
}

/// The progress of one agent towards the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentOutcome {
    Reached,
    Failed,
    Waiting,
    /// The stack does not, or no longer, target this agent.
    NotTargeted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Reached,
    /// No agent is pending, and some failed.
    Failed,
    /// A newer version replaced it before it was on every agent.
    Replaced(SequenceId),
    Waiting,
}

impl Goal {
    pub fn outcome(self, row: &StackStatus) -> AgentOutcome {
        match self {
            Self::Applied(sequence) => {
                delivered(sequence, row, &[State::Applied, State::Healthy, State::Degraded])
            }
            Self::Delivered(sequence) => delivered(sequence, row, &[State::Healthy]),
            Self::Removed(marker) => removed(marker, row),
        }
    }

    pub fn verdict(self, rows: &[StackStatus]) -> Verdict {
        let outcomes: Vec<AgentOutcome> = rows.iter().map(|row| self.outcome(row)).collect();
        let targeted = outcomes.iter().filter(|outcome| **outcome != AgentOutcome::NotTargeted).count();
        let has = |outcome: AgentOutcome| outcomes.contains(&outcome);
        // Without targeted agents a removal is complete, but a delivery has not started.
        let is_empty_delivery = targeted == 0 && !matches!(self, Self::Removed(_));
        if let Some(newer) = self.replaced_by(rows, &outcomes) {
            return Verdict::Replaced(newer);
        }
        match (has(AgentOutcome::Waiting) || is_empty_delivery, has(AgentOutcome::Failed)) {
            (true, _) => Verdict::Waiting,
            (false, true) => Verdict::Failed,
            (false, false) => Verdict::Reached,
        }
    }

    fn replaced_by(self, rows: &[StackStatus], outcomes: &[AgentOutcome]) -> Option<SequenceId> {
        let (Self::Applied(sequence) | Self::Delivered(sequence)) = self else { return None };
        let open = rows.iter().zip(outcomes).filter(|(_, outcome)| **outcome != AgentOutcome::Reached);
        open.filter_map(|(row, _)| row.wanted_sequence_id).filter(|wanted| *wanted > sequence).max()
    }
}

fn delivered(sequence: SequenceId, row: &StackStatus, good: &[State]) -> AgentOutcome {
    if matches!(row.state, State::Removing | State::Removed) || row.wanted_sequence_id.is_none() {
        return AgentOutcome::NotTargeted;
    }
    let knows = row.wanted_sequence_id.is_some_and(|wanted| wanted >= sequence);
    let has = row.sequence_id.is_some_and(|has| has >= sequence);
    match row.state {
        state if good.contains(&state) && knows && has => AgentOutcome::Reached,
        State::Failed if knows && has => AgentOutcome::Failed,
        _ => AgentOutcome::Waiting,
    }
}

fn removed(marker: SequenceId, row: &StackStatus) -> AgentOutcome {
    let knows = row.wanted_sequence_id.is_none_or(|wanted| wanted >= marker);
    match row.state {
        State::Removed if knows => AgentOutcome::Reached,
        // Neither targeted nor held: the agent never had the stack, or removed it earlier.
        _ if row.wanted_sequence_id.is_none() => AgentOutcome::NotTargeted,
        State::Failed if row.sequence_id.is_some_and(|has| has >= marker) => AgentOutcome::Failed,
        _ => AgentOutcome::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::row;

    const GOAL: Goal = Goal::Delivered(SequenceId(42));

    #[test]
    fn health_of_an_earlier_version_says_nothing() {
        assert_eq!(GOAL.verdict(&[row("a", 42, 41, State::Pending)]), Verdict::Waiting);
        // A replica that does not know 42 yet still reports 41 as healthy.
        assert_eq!(GOAL.verdict(&[row("a", 41, 41, State::Healthy)]), Verdict::Waiting);
        assert_eq!(GOAL.verdict(&[row("a", 41, 41, State::Failed)]), Verdict::Waiting);
        assert_eq!(GOAL.verdict(&[row("a", 42, 42, State::Healthy)]), Verdict::Reached);
    }

    #[test]
    fn every_agent_counts_and_no_agents_is_not_success() {
        assert_eq!(GOAL.verdict(&[]), Verdict::Waiting);
        let (good, slow) = (row("a", 42, 42, State::Healthy), row("b", 42, 42, State::Applied));
        assert_eq!(GOAL.verdict(&[good.clone(), slow.clone()]), Verdict::Waiting);
        let bad = row("c", 42, 42, State::Failed);
        assert_eq!(GOAL.verdict(&[good.clone(), bad.clone(), slow]), Verdict::Waiting, "b may still arrive");
        assert_eq!(GOAL.verdict(&[good.clone(), bad]), Verdict::Failed);
        assert_eq!(GOAL.verdict(&[good, row("d", 42, 41, State::Removing)]), Verdict::Reached);
    }

    #[test]
    fn a_newer_version_is_reported_unless_it_has_arrived_everywhere() {
        assert_eq!(GOAL.verdict(&[row("a", 43, 42, State::Pending)]), Verdict::Replaced(SequenceId(43)));
        assert_eq!(GOAL.verdict(&[row("a", 43, 43, State::Healthy)]), Verdict::Reached);
    }

    #[test]
    fn applied_is_enough_if_that_is_the_goal() {
        let applied = row("a", 42, 42, State::Applied);
        assert_eq!(GOAL.verdict(std::slice::from_ref(&applied)), Verdict::Waiting);
        let goal = Goal::Applied(SequenceId(42));
        assert_eq!(goal.verdict(&[applied]), Verdict::Reached);
        assert_eq!(goal.verdict(&[row("a", 42, 41, State::Pending)]), Verdict::Waiting);
        assert_eq!(goal.verdict(&[]), Verdict::Waiting);
    }

    #[test]
    fn a_removal_is_reached_only_when_every_agent_has_seen_it_gone() {
        let goal = Goal::Removed(SequenceId(50));
        assert_eq!(goal.verdict(&[row("a", 42, 42, State::Healthy)]), Verdict::Waiting);
        assert_eq!(goal.verdict(&[row("a", 50, 50, State::Blocked)]), Verdict::Waiting);
        let gone = row("a", 50, 50, State::Removed);
        assert_eq!(goal.verdict(&[gone.clone(), row("b", 50, 42, State::Removing)]), Verdict::Waiting);
        assert_eq!(goal.verdict(&[gone]), Verdict::Reached);
        assert_eq!(goal.verdict(&[]), Verdict::Reached);
    }
}
