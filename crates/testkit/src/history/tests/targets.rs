//! S6: the stored targets and the acknowledged ones.

use super::{Acknowledgement, Operation, Outcome, StackId, allows, finds, retarget};

const BOTH: [&str; 2] = ["group=b", "group=a"];

/// Returns a change that keeps the agent as a target, with an unknown outcome.
fn unknown(stack: StackId, began: u64) -> Operation {
    let mut change = retarget(stack, &BOTH, began, began + 1);
    change.attempts[0].outcome = Outcome::Unknown("no answer".into());
    change
}

#[test]
fn an_acknowledged_change_of_targets_that_is_not_stored_is_found() {
    finds("S6", "not the last acknowledged", |story| {
        story.history.operations.push(retarget(story.stack, &BOTH, 60, 65));
    });
    finds("S6", "not the last acknowledged", |story| {
        story.truth.stacks[0].selectors = BOTH.map(String::from).to_vec();
        story.truth.views.clear();
    });
    finds("S6", "not the last acknowledged", |story| story.truth.stacks[0].selectors.clear());
}

#[test]
fn an_acknowledgement_with_other_targets_than_requested_is_found() {
    finds("S6", "were acknowledged as", |story| {
        let mut change = retarget(story.stack, &["group=a"], 60, 65);
        let Outcome::Acknowledged(Acknowledgement::Targets { selectors, .. }) =
            &mut change.attempts[0].outcome
        else {
            panic!("not acknowledged")
        };
        *selectors = vec!["group=b".into()];
        story.history.operations.push(change);
    });
}

#[test]
fn the_order_of_selectors_means_nothing() {
    allows(|story| {
        story.history.operations.push(retarget(story.stack, &BOTH, 60, 65));
        story.truth.stacks[0].selectors = vec!["group=a".into(), "group=b".into()];
    });
}

#[test]
fn of_concurrent_changes_each_may_be_the_last() {
    for stored in [&["group=a"][..], &BOTH] {
        allows(|story| {
            story.history.operations.push(retarget(story.stack, &BOTH, 60, 70));
            story.history.operations.push(retarget(story.stack, &["group=a"], 65, 75));
            story.truth.stacks[0].selectors = stored.iter().map(ToString::to_string).collect();
        });
    }
}

#[test]
fn a_change_with_an_unknown_outcome_may_have_been_made_or_not() {
    for stored in [&["group=a"][..], &BOTH] {
        allows(|story| {
            story.history.operations.push(unknown(story.stack, 60));
            story.truth.stacks[0].selectors = stored.iter().map(ToString::to_string).collect();
        });
    }
    finds("S6", "not the last acknowledged", |story| {
        story.history.operations.push(unknown(story.stack, 60));
        story.truth.stacks[0].selectors = vec!["group=c".into()];
        story.truth.views.clear();
    });
}

#[test]
fn a_change_of_another_stack_that_had_the_same_name_is_no_change_of_this_one() {
    allows(|story| story.history.operations.push(retarget(StackId::generate(), &BOTH, 60, 65)));
}
