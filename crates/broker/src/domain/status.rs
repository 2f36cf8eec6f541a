//! The state of a stack on an agent, from its target state and the last report.

use std::collections::BTreeMap;

use brokkr_api::SequenceId;
use brokkr_api::envelope::Removal;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Condition, Hops, ObjectNote, Transition};
use brokkr_api::status::{State, StateCounts};

/// The last report of an agent about a stack.
#[derive(Clone, Debug)]
pub struct LastReport {
    pub sequence_id: SequenceId,
    pub transition: Transition,
    pub reason: Reason,
    pub message: Message,
    pub objects: Vec<ObjectNote>,
    pub hops: Hops,
    pub conditions: Vec<Condition>,
    pub ready: u32,
    pub total: u32,
}

/// Returns the state of a stack on an agent.
#[must_use]
pub fn state(
    wanted: Option<(SequenceId, Option<Removal>)>,
    reported: Option<(SequenceId, &Transition)>,
) -> State {
    match (wanted, reported) {
        // The agent should neither have nor remove the stack: the last report decides.
        (None, reported) => reported.map_or(State::Removed, |(_, transition)| state_after(transition)),
        (Some((_, Some(_))), None) => State::Removing,
        (Some((wanted, Some(_))), Some((sequence, transition))) => match transition {
            _ if sequence < wanted => State::Removing,
            Transition::Removed => State::Removed,
            Transition::Blocked => State::Blocked,
            Transition::Failed => State::Failed,
            _ => State::Removing,
        },
        (Some((_, None)), None) => State::Pending,
        (Some((wanted, None)), Some((sequence, transition))) => match transition {
            _ if sequence < wanted => State::Pending,
            // Targeted again after a removal: the report is about the removal.
            Transition::Removed => State::Pending,
            transition => state_after(transition),
        },
    }
}

fn state_after(transition: &Transition) -> State {
    match transition {
        Transition::Applied => State::Applied,
        // A repair restores the target state; other reports say whether the objects are ready.
        Transition::Healthy
        | Transition::Repaired
        | Transition::Drifted
        | Transition::Suspended
        | Transition::Resumed => State::Healthy,
        Transition::Degraded => State::Degraded,
        Transition::Failed => State::Failed,
        Transition::Blocked => State::Blocked,
        Transition::Removed => State::Removed,
        Transition::Other(_) => State::Unknown,
    }
}

/// Adds up the counters of each deployment object.
#[must_use]
pub fn by_sequence(counts: &[(SequenceId, Transition, u64)]) -> BTreeMap<SequenceId, StateCounts> {
    let mut sequences: BTreeMap<SequenceId, StateCounts> = BTreeMap::new();
    for (sequence, transition, agents) in counts {
        let counts = sequences.entry(*sequence).or_default();
        let count = match transition {
            Transition::Applied => &mut counts.applied,
            Transition::Healthy
            | Transition::Repaired
            | Transition::Drifted
            | Transition::Suspended
            | Transition::Resumed => &mut counts.healthy,
            Transition::Degraded => &mut counts.degraded,
            Transition::Failed => &mut counts.failed,
            Transition::Blocked => &mut counts.blocked,
            Transition::Removed => &mut counts.removed,
            Transition::Other(_) => &mut counts.unknown,
        };
        *count += agents;
    }
    sequences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_only_for_the_object_that_is_wanted() {
        let wanted = Some((SequenceId(7), None));
        assert_eq!(state(wanted, None), State::Pending);
        assert_eq!(state(wanted, Some((SequenceId(6), &Transition::Healthy))), State::Pending);
        assert_eq!(state(wanted, Some((SequenceId(7), &Transition::Applied))), State::Applied);
        assert_eq!(state(wanted, Some((SequenceId(7), &Transition::Failed))), State::Failed);
    }

    #[test]
    fn a_removal_is_done_only_when_it_was_reported() {
        let going = Some((SequenceId(8), Some(Removal::Deleted)));
        assert_eq!(state(going, Some((SequenceId(7), &Transition::Healthy))), State::Removing);
        assert_eq!(state(going, Some((SequenceId(8), &Transition::Blocked))), State::Blocked);
        assert_eq!(state(going, Some((SequenceId(8), &Transition::Removed))), State::Removed);
        assert_eq!(state(None, Some((SequenceId(8), &Transition::Removed))), State::Removed);
        // Targeted again after it was removed.
        let back = Some((SequenceId(8), None));
        assert_eq!(state(back, Some((SequenceId(8), &Transition::Removed))), State::Pending);
    }
}
