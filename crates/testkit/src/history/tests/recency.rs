//! S14: responses that are older than the position of the request.

use brokkr_api::Position;

use super::super::record::StackRead;
use super::{SequenceId, ServedState, Story, allows, finds, position};

fn read(story: &Story, asked: i64, newest: Option<i64>) -> StackRead {
    StackRead { replica: 1, stack: story.stack, asked: position(asked), newest: newest.map(SequenceId) }
}

fn served(story: &Story, at: i64, stacks: &[i64]) -> ServedState {
    ServedState {
        agent: story.agent,
        replica: 1,
        asked: position(at),
        position: position(at),
        stacks: stacks.iter().map(|number| (story.stack, SequenceId(*number))).collect(),
    }
}

#[test]
fn a_served_state_that_is_older_than_the_position_of_the_agent_is_found() {
    finds("S14", "where 3 is visible", |story| {
        story.history.served = vec![served(story, 3, &[2])];
    });
    allows(|story| story.history.served = vec![served(story, 2, &[2]), served(story, 2, &[3])]);
}

#[test]
fn a_stack_that_is_missing_at_a_position_is_found() {
    finds("S14", "without stack", |story| story.history.served.push(served(story, 3, &[])));
    // Before its first submission, the stack is not served.
    allows(|story| story.history.served.insert(0, served(story, 0, &[])));
}

#[test]
fn a_stack_that_may_have_lost_the_agent_may_be_missing() {
    allows(|story| {
        story.history.operations.push(super::retarget(story.stack, &["group=b"], 60, 65));
        story.truth.stacks[0].selectors = vec!["group=b".into()];
        story.truth.views.clear();
        story.history.served.push(served(story, 3, &[]));
    });
}

#[test]
fn an_agent_that_is_shown_a_lower_position_is_found() {
    finds("S14", "the position 1.10 after 1.30", |story| {
        let mut lower = served(story, 1, &[3]);
        lower.asked = position(3);
        story.history.served.push(lower);
    });
}

#[test]
fn a_read_that_is_older_than_the_position_it_was_asked_for_is_found() {
    finds("S14", "where Some(", |story| {
        let stale = read(story, 3, Some(2));
        story.history.reads.push(stale);
    });
    finds("S14", "read None", |story| {
        let stale = read(story, 1, None);
        story.history.reads.push(stale);
    });
    allows(|story| {
        story.history.reads = vec![read(story, 0, None), read(story, 2, Some(2)), read(story, 2, Some(3))];
    });
}

#[test]
fn positions_of_different_epochs_are_not_compared() {
    allows(|story| {
        let mut later = read(story, 3, Some(1));
        later.asked = Position { epoch: 2, horizon: 1000 };
        story.history.reads.push(later);
    });
}
