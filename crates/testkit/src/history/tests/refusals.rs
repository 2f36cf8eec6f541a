//! S10: refused changes and their reasons.

use brokkr_api::ErrorCode;

use super::{
    Attempt, Change, Operation, Outcome, Refusal, SequenceId, Story, allows, content, finds, retarget, row,
};

fn refused(change: Change, code: Option<ErrorCode>, began: u64, ended: u64) -> Operation {
    let outcome = Outcome::Refused(Refusal { code, text: "refused".into() });
    Operation {
        key: format!("refused-{began}"),
        change,
        attempts: vec![Attempt { replica: 0, began, ended, outcome }],
    }
}

fn submit(number: i64) -> Change {
    Change::Submit { stack: "web".into(), content: content(number) }
}

fn roll_back() -> Change {
    Change::RollBack { stack: "web".into() }
}

fn target(selectors: &[&str]) -> Change {
    Change::Target { stack: "web".into(), selectors: selectors.iter().map(ToString::to_string).collect() }
}

/// Returns a deletion of `web` with an unknown outcome, so that the rest of the story stays as it is.
fn deletion(began: u64) -> Operation {
    let outcome = Outcome::Unknown("no answer".into());
    Operation {
        key: "delete".into(),
        change: Change::Delete { stack: "web".into() },
        attempts: vec![Attempt { replica: 0, began, ended: began + 1, outcome }],
    }
}

#[test]
fn a_refused_submission_that_exists_is_found() {
    finds("S10", "was refused, but exists", |story| {
        story.history.operations.push(refused(submit(4), Some(ErrorCode::BRK2008), 60, 65));
        story.truth.objects.push(row(story.stack, 4));
        story.truth.stacks[0].newest = Some(SequenceId(4));
    });
}

#[test]
fn a_refusal_that_nothing_explains_is_found() {
    let finds_refusal = |change: Change, code| {
        finds("S10", "nothing explains", move |story: &mut Story| {
            story.history.operations.push(refused(change, code, 60, 65));
        });
    };
    finds_refusal(submit(4), None);
    finds_refusal(submit(4), Some(ErrorCode::BRK2005));
    finds_refusal(submit(4), Some(ErrorCode::BRK2008));
    finds_refusal(submit(4), Some(ErrorCode::BRK2011));
    finds_refusal(roll_back(), Some(ErrorCode::BRK2013));
    finds_refusal(target(&["group=a", "group=b"]), Some(ErrorCode::BRK2009));
    finds_refusal(Change::Delete { stack: "web".into() }, Some(ErrorCode::BRK2001));
    finds("S10", "nothing explains", |story| {
        let reports = Change::Report { agent: story.agent, reports: Vec::new() };
        story.history.operations.push(refused(reports, Some(ErrorCode::BRK1001), 60, 65));
    });
}

#[test]
fn a_deletion_explains_that_the_stack_does_not_exist_unless_it_began_later() {
    for code in [ErrorCode::BRK2001, ErrorCode::BRK2008] {
        allows(|story| {
            story.history.operations.push(deletion(62));
            story.history.operations.push(refused(submit(4), Some(code), 60, 65));
        });
    }
    finds("S10", "nothing explains", |story| {
        story.history.operations.push(refused(submit(4), Some(ErrorCode::BRK2008), 60, 65));
        story.history.operations.push(deletion(66));
    });
}

#[test]
fn a_roll_back_is_refused_only_if_there_may_be_no_earlier_version() {
    let at = |began| refused(roll_back(), Some(ErrorCode::BRK2013), began, began + 1);
    // After the first submission and before the second has been acknowledged.
    allows(|story| story.history.operations.push(at(18)));
    allows(|story| story.history.operations.push(at(24)));
    finds("S10", "nothing explains", |story| story.history.operations.push(at(26)));
}

#[test]
fn targets_are_refused_only_if_a_selector_may_be_removed() {
    let narrower = || refused(target(&["group=b"]), Some(ErrorCode::BRK2009), 60, 65);
    allows(|story| story.history.operations.push(narrower()));
    finds("S10", "nothing explains", |story| {
        // The only other change of targets removes nothing.
        story.history.operations.retain(|operation| !matches!(operation.change, Change::Target { .. }));
        story.history.operations.push(retarget(story.stack, &["group=b"], 1, 2));
        story.history.operations.push(narrower());
    });
}

#[test]
fn a_deletion_of_another_stack_explains_nothing() {
    finds("S10", "nothing explains", |story| {
        let mut other = deletion(50);
        other.change = Change::Delete { stack: "shop".into() };
        story.history.operations.push(other);
        story.history.operations.push(refused(submit(4), Some(ErrorCode::BRK2008), 60, 65));
    });
}
