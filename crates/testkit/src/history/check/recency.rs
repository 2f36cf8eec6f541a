//! S14: a response is at least as recent as the position that came with the request.
//!
//! The position of a response is an upper bound: a transaction that is open while others are shown may be below it and not in it.
//! A replica that is asked with this position waits until it has read everything below.

use std::collections::{BTreeMap, HashMap};

use brokkr_api::{AgentId, Position, SequenceId, StackId};

use super::super::record::{Acknowledgement, Change, History, Operation};
use super::super::truth::{Truth, any_matches};
use super::ReportViolation;

/// S14: an agent that has seen a position is never shown a lower one.
pub(super) fn positions_never_decrease(history: &History, violation: &mut ReportViolation<'_>) {
    for served in history.served.iter().filter(|served| served.position < served.asked) {
        violation(
            "S14",
            format!(
                "replica {} showed agent {} the position {} after {}",
                served.replica, served.agent, served.position, served.asked
            ),
        );
    }
}

/// S14: a state that was served to an agent, and a stack that was read, contain every acknowledged change that is visible at the
/// position of the request.
pub(super) fn responses_reflect_the_position_of_the_request(
    history: &History,
    truth: &Truth,
    violation: &mut ReportViolation<'_>,
) {
    let written = Written::of(history);
    for read in &history.reads {
        let newest = written.newest(read.stack, read.asked);
        if newest > read.newest {
            violation(
                "S14",
                format!(
                    "replica {} read {:?} of stack {} at {}, where {newest:?} is visible",
                    read.replica, read.newest, read.stack, read.asked
                ),
            );
        }
    }
    let mut always: HashMap<AgentId, Vec<(StackId, Position)>> = HashMap::new();
    for served in &history.served {
        let (replica, agent, asked) = (served.replica, served.agent, served.asked);
        for (stack, sequence) in &served.stacks {
            if let Some(newest) = written.newest(*stack, asked)
                && *sequence < newest
            {
                violation(
                    "S14",
                    format!(
                        "replica {replica} served {agent} {sequence} at {asked}, where {newest} is visible"
                    ),
                );
            }
        }
        let always = always.entry(agent).or_insert_with(|| always_targets(history, truth, agent));
        for (stack, since) in always.iter() {
            let is_targeted = is_visible(*since, asked);
            if let Some(newest) = written.newest(*stack, asked)
                && is_targeted
                && !served.stacks.iter().any(|(served, _)| served == stack)
            {
                violation(
                    "S14",
                    format!(
                        "replica {replica} served {agent} without stack {stack} at {asked}, where {newest} is visible"
                    ),
                );
            }
        }
    }
}

/// Returns whether a change is visible at a position. Positions of different epochs are not compared: a restore is between
/// them.
fn is_visible(change: Position, at: Position) -> bool {
    change.epoch == at.epoch && change.horizon <= at.horizon
}

/// The newest acknowledged version of each stack, by the position at which it is visible.
struct Written(HashMap<StackId, BTreeMap<Position, SequenceId>>);

impl Written {
    fn of(history: &History) -> Self {
        let mut written: HashMap<StackId, BTreeMap<Position, SequenceId>> = HashMap::new();
        for operation in &history.operations {
            if let Some((Acknowledgement::Object { stack, sequence, position: Some(position), .. }, _)) =
                operation.acknowledged()
            {
                written.entry(*stack).or_default().insert(*position, *sequence);
            }
        }
        for versions in written.values_mut() {
            let mut highest: Option<(Position, SequenceId)> = None;
            for (position, sequence) in versions.iter_mut() {
                if let Some((before, highest)) = highest
                    && before.epoch == position.epoch
                {
                    *sequence = (*sequence).max(highest);
                }
                highest = Some((*position, *sequence));
            }
        }
        Self(written)
    }

    fn newest(&self, stack: StackId, at: Position) -> Option<SequenceId> {
        let (visible, newest) = self.0.get(&stack)?.range(..=at).next_back()?;
        is_visible(*visible, at).then_some(*newest)
    }
}

/// Returns the stacks that target the agent whichever of their changes were made, each with the position of the first
/// acknowledged one.
fn always_targets(history: &History, truth: &Truth, agent: AgentId) -> Vec<(StackId, Position)> {
    let Some((_, labels)) = truth.agents.iter().find(|(id, _)| *id == agent) else { return Vec::new() };
    let mut since: HashMap<StackId, Position> = HashMap::new();
    for operation in &history.operations {
        if let Some((Acknowledgement::Targets { stack, position: Some(position), .. }, _)) =
            operation.acknowledged()
        {
            let first = since.entry(*stack).or_insert(*position);
            *first = (*first).min(*position);
        }
    }
    let may_lose_it = |operation: &Operation| match &operation.change {
        Change::Target { selectors, .. } => !any_matches(selectors, labels),
        Change::Delete { .. } => true,
        _ => false,
    };
    let keeps_it = |name: &str| {
        let mut changes = history.operations.iter().filter(|operation| !operation.refused());
        !changes.any(|operation| operation.change.stack() == Some(name) && may_lose_it(operation))
    };
    let stacks = truth.stacks.iter().filter(|stack| keeps_it(&stack.name));
    stacks.filter_map(|stack| Some((stack.id, *since.get(&stack.id)?))).collect()
}
