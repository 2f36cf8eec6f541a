//! A good history passes; every planted violation is found.

mod recency;
mod refusals;
mod targets;

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, EventId, Labels, Position, SequenceId, StackId};

use super::{
    Acknowledgement, Attempt, Change, History, ObjectRow, Operation, Outcome, Refusal, ServedState, StackRow,
    Truth, View, check,
};

struct Story {
    history: History,
    truth: Truth,
    stack: StackId,
    agent: AgentId,
}

fn content(number: i64) -> Checksum {
    Checksum::of(&number.to_be_bytes())
}

/// Returns the position at which the submission with this number is visible.
fn position(number: i64) -> Position {
    Position { epoch: 1, horizon: number.unsigned_abs() * 10 }
}

fn submission(stack: StackId, number: i64, began: u64, ended: u64) -> Operation {
    let acknowledgement = Acknowledgement::Object {
        stack,
        sequence: SequenceId(number),
        content: content(number),
        position: Some(position(number)),
    };
    Operation {
        key: format!("submit-{number}"),
        change: Change::Submit { stack: "web".into(), content: content(number) },
        attempts: vec![Attempt { replica: 0, began, ended, outcome: Outcome::Acknowledged(acknowledgement) }],
    }
}

/// Returns an acknowledged change of the targets of `web`.
fn retarget(stack: StackId, selectors: &[&str], began: u64, ended: u64) -> Operation {
    let selectors: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    let shown = selectors.clone();
    let acknowledgement = Acknowledgement::Targets { stack, selectors: shown, position: Some(position(0)) };
    Operation {
        key: format!("target-{began}"),
        change: Change::Target { stack: "web".into(), selectors },
        attempts: vec![Attempt { replica: 0, began, ended, outcome: Outcome::Acknowledged(acknowledgement) }],
    }
}

fn row(stack: StackId, number: i64) -> ObjectRow {
    ObjectRow {
        stack,
        sequence: SequenceId(number),
        checksum: content(number),
        content: content(number),
        is_deletion_marker: false,
    }
}

/// Three submissions one after the other, one report, one change of targets before, one agent, two replicas.
fn story() -> Story {
    let (stack, agent, report) = (StackId::generate(), AgentId::generate(), EventId::generate());
    let mut operations: Vec<Operation> =
        (1..=3u8).map(|n| submission(stack, n.into(), u64::from(n) * 10, u64::from(n) * 10 + 5)).collect();
    operations.push(Operation {
        key: "report".into(),
        change: Change::Report { agent, reports: vec![report] },
        attempts: vec![Attempt {
            replica: 1,
            began: 40,
            ended: 45,
            outcome: Outcome::Acknowledged(Acknowledgement::Receipt {
                durable: vec![report],
                refused: Vec::new(),
            }),
        }],
    });
    operations.push(retarget(stack, &["group=a"], 1, 2));
    let seen = |asked, number| ServedState {
        agent,
        replica: 0,
        asked: position(asked),
        position: position(number),
        stacks: vec![(stack, SequenceId(number))],
    };
    let view = |replica| View { replica, agent, stacks: vec![(stack, SequenceId(3))] };
    Story {
        history: History { operations, served: vec![seen(0, 1), seen(1, 3)], reads: Vec::new() },
        truth: Truth {
            objects: (1..=3).map(|number| row(stack, number)).collect(),
            stacks: vec![StackRow {
                id: stack,
                name: "web".into(),
                newest: Some(SequenceId(3)),
                deleted: false,
                selectors: vec!["group=a".into()],
            }],
            agents: vec![(agent, Labels::from([("group".into(), "a".into())]))],
            events: vec![report],
            messages: Some((1..=3).map(SequenceId).collect()),
            audited_submissions: 3,
            views: vec![view(0), view(1)],
        },
        stack,
        agent,
    }
}

/// Requires that the changed story has no violation either.
#[track_caller]
fn allows(change: impl FnOnce(&mut Story)) {
    let mut story = story();
    change(&mut story);
    assert_eq!(check(&story.history, &story.truth), []);
}

#[track_caller]
fn finds(rule: &str, word: &str, plant: impl FnOnce(&mut Story)) {
    let mut story = story();
    assert_eq!(check(&story.history, &story.truth), [], "the unchanged story has no violation");
    plant(&mut story);
    let found = check(&story.history, &story.truth);
    assert!(
        found.iter().any(|violation| violation.rule == rule && violation.what.contains(word)),
        "{rule} … {word} is not among {found:#?}"
    );
}

#[test]
fn a_lost_submission_is_found() {
    finds("S4", "is lost", |story| {
        story.truth.objects.remove(1);
    });
}

#[test]
fn a_submission_done_twice_is_found() {
    finds("S4", "not acknowledged to any client", |story| {
        let twin = ObjectRow { sequence: SequenceId(4), ..row(story.stack, 2) };
        story.truth.objects.push(twin);
    });
    finds("S4", "one key, two objects", |story| {
        let again = submission(story.stack, 9, 16, 17).attempts.remove(0);
        story.history.operations[0].attempts.push(again);
    });
}

#[test]
fn an_operation_with_an_unknown_outcome_may_have_happened_at_most_once() {
    let mut story = story();
    let mut open = submission(story.stack, 4, 50, 51);
    open.attempts[0].outcome = Outcome::Unknown("no answer".into());
    story.history.operations.push(open);
    assert_eq!(check(&story.history, &story.truth), []);
    story.truth.objects.push(row(story.stack, 4));
    story.truth.audited_submissions = 4;
    story.truth.messages = None;
    story.truth.stacks[0].newest = Some(SequenceId(4));
    story.truth.views.clear();
    assert_eq!(check(&story.history, &story.truth), []);
    story.truth.objects.push(ObjectRow { sequence: SequenceId(5), ..row(story.stack, 4) });
    story.truth.stacks[0].newest = Some(SequenceId(5));
    assert_eq!(check(&story.history, &story.truth).len(), 1);
}

#[test]
fn an_operation_that_was_refused_but_executed_is_found() {
    finds("S4", "not acknowledged to any client", |story| {
        let refusal = Refusal { code: None, text: "422".into() };
        story.history.operations[2].attempts[0].outcome = Outcome::Refused(refusal);
    });
}

#[test]
fn a_changed_object_is_found() {
    finds("S3", "not what was acknowledged", |story| story.truth.objects[0].content = content(77));
    finds("S3", "not what was acknowledged", |story| story.truth.objects[0].stack = StackId::generate());
}

#[test]
fn only_the_order_by_real_time_is_required() {
    finds("S5", "began after", |story| {
        let first = &mut story.history.operations[0];
        (first.attempts[0].began, first.attempts[0].ended) = (90, 95);
    });
    // At the same time: either may come first.
    let mut story = story();
    for operation in &mut story.history.operations[..2] {
        (operation.attempts[0].began, operation.attempts[0].ended) = (10, 20);
    }
    story.history.operations[0].attempts[0].ended = 29;
    assert_eq!(check(&story.history, &story.truth), []);
}

#[test]
fn a_newest_object_without_the_highest_sequence_id_is_found() {
    finds("S5", "the newest is", |story| story.truth.stacks[0].newest = Some(SequenceId(2)));
}

#[test]
fn lost_duplicated_and_unsent_reports_are_found() {
    finds("S12", "is lost", |story| story.truth.events.clear());
    finds("S12", "counted 2 times", |story| {
        let twin = story.truth.events[0];
        story.truth.events.push(twin);
    });
    finds("S12", "no agent sent", |story| story.truth.events.push(EventId::generate()));
}

#[test]
fn missing_and_extra_webhook_messages_are_found() {
    finds("S13", "has 0 messages", |story| story.truth.messages = Some(vec![SequenceId(1), SequenceId(2)]));
    finds("S13", "has 2 messages", |story| {
        story.truth.messages = Some([1, 2, 3, 3].map(SequenceId).to_vec());
    });
    finds("S13", "does not exist", |story| {
        story.truth.messages = Some((1..=4).map(SequenceId).collect());
    });
}

#[test]
fn missing_and_extra_audit_entries_are_found() {
    finds("S20", "2 are in the audit log", |story| story.truth.audited_submissions = 2);
    finds("S20", "4 are in the audit log", |story| story.truth.audited_submissions = 4);
}

#[test]
fn an_agent_sent_back_to_an_older_version_is_found() {
    finds("S2", "back to", |story| story.history.served.reverse());
}

#[test]
fn a_replica_that_missed_something_is_found() {
    finds("L1", "replica 1", |story| {
        story.truth.views[1].stacks = vec![(story.stack, SequenceId(2))];
    });
    finds("L1", "replica 1", |story| {
        let (agent, stacks) = (story.agent, Vec::new());
        story.truth.views[1] = View { replica: 1, agent, stacks };
    });
}
