//! Builds the reports about a stack.
//!
//! A report is stored in the record, with its time, before it is sent. So its id, which is derived
//! from its contents, is the same if it is sent again after a crash.

use std::collections::BTreeSet;

use brokkr_api::envelope::TargetStack;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Hops, NOTES, ObjectNote, Report, Transition};
use brokkr_api::{AgentId, EventId};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::timing::{SLOW_AFTER, due};
use crate::model::{Failure, Outcome, Plan, Record, Situation, Stage, Step};
use crate::resource::{KindIn, object_ref};

pub(super) const LONGEST_MESSAGE: usize = 800;
const LONGEST_NOTE: usize = 400;
/// The maximum number of stored reports while the broker is unreachable.
const KEPT_REPORTS: usize = 50;

/// Returns the hops (the times of the steps of a delivery) that the broker has announced.
pub(super) fn announced(target: &TargetStack) -> Hops {
    let published = target.published_at;
    let targeted = target.targeted_at.max(published);
    let released = target.released_at.max(targeted);
    Hops { published: Some(published), targeted: Some(targeted), released: Some(released), ..Hops::default() }
}

/// Reports a failure, once for each distinct reason.
pub(super) fn failed(situation: &Situation<'_>, reason: &Reason, notes: Vec<ObjectNote>) -> Plan {
    let message = summary(&notes);
    report_once(situation, Stage::Stopped, Transition::Failed, reason, &message, notes)
}

pub(super) fn blocked(
    situation: &Situation<'_>,
    stage: Stage,
    reason: &Reason,
    message: &Message,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut plan = report_once(situation, stage, Transition::Blocked, reason, message, notes);
    plan.waiting_for = Some(message.clone());
    plan
}

/// Waits. If this lasts longer than `patience`, it is reported once.
pub(super) fn wait(
    situation: &Situation<'_>,
    stage: Stage,
    patience: SignedDuration,
    reason: &Reason,
    message: &Message,
    notes: Vec<ObjectNote>,
) -> Plan {
    let until = situation.progress.waiting_since(stage).unwrap_or(situation.now) + patience;
    if due(until, situation.now) {
        blocked(situation, stage, reason, message, notes)
    } else {
        Plan::waiting(stage, message.clone()).wake(Some(until))
    }
}

/// Waits for these watches.
pub(super) fn unwatched(situation: &Situation<'_>, stage: Stage, watch: BTreeSet<KindIn>) -> Plan {
    let first = watch.first().map(|first| first.kind.to_string()).unwrap_or_default();
    let reason = Reason::CannotWatch { kind: first };
    Plan { watch, ..wait(situation, stage, SLOW_AFTER, &reason, &reason.message(), Vec::new()) }
}

/// Writes a report, unless the record already says the same.
pub(super) fn report_once(
    situation: &Situation<'_>,
    stage: Stage,
    transition: Transition,
    reason: &Reason,
    message: &Message,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut record = situation.current_record();
    let sequence = situation.goal.target.sequence_id;
    let message = &message.clipped(LONGEST_MESSAGE);
    let already = record.version.is_some()
        && record.outcome.as_ref().is_some_and(|outcome| {
            outcome.transition == transition
                && outcome.sequence == sequence
                && outcome.reason == *reason
                && outcome.message == *message
        });
    if already && situation.progress.delivery.has_unrecorded_uid {
        // Each cycle of a stopped delivery may create its Namespaces again. A crash must not forget who created them.
        return Plan::with(stage, vec![Step::WriteRecord(Box::new(record))]);
    }
    if already {
        return Plan::waiting(stage, message.clone());
    }
    // The record may still be about the previous version, with other hops.
    let recorded = record.hops;
    if record.sequence != sequence || record.hops.published.is_none() {
        record.hops = so_far(situation);
    }
    report(situation, &mut record, transition, reason, message, notes);
    record.hops = recorded;
    Plan::with(stage, vec![Step::WriteRecord(Box::new(record))])
}

/// J4: reports that the record cannot be written. This report is not in the record, so it is lost if the agent ends before it
/// is sent.
#[must_use]
pub fn unrecorded(
    agent: AgentId,
    target: &TargetStack,
    record: Option<&Record>,
    failure: &Failure,
    now: Timestamp,
) -> Report {
    let known = record.filter(|record| record.sequence == target.sequence_id);
    let mut report = Report {
        id: EventId(Default::default()),
        stack_id: target.stack_id,
        sequence_id: target.sequence_id,
        transition: Transition::Blocked,
        at: microseconds(now),
        hops: known.map_or_else(|| announced(target), |record| record.hops),
        reason: failure.reason.clone(),
        message: failure.message.clipped(LONGEST_MESSAGE),
        objects: Vec::new(),
        conditions: record.map(|record| record.conditions.clone()).unwrap_or_default(),
        dropped: 0,
        ready: known.map_or(0, |record| record.ready),
        total: known.map_or(0, |record| record.total),
    };
    report.id = report.derived_id(agent);
    report
}

/// Returns the hops of a version that is not recorded yet.
fn so_far(situation: &Situation<'_>) -> Hops {
    let target = &situation.goal.target;
    let (fetched, verified) = match (&situation.goal.content, &situation.progress.failures.fetch) {
        (Some(content), _) => (Some(content.fetched), Some(content.verified)),
        // Parsed, but its kinds are unknown; or fetched, but not parsed.
        (None, Some(retry)) => match &retry.failure.reason {
            Reason::UnknownKind { .. } | Reason::DiscoveryFailed => (Some(retry.since), Some(retry.since)),
            Reason::Unreadable | Reason::ParsedDifferently | Reason::NotNamespaced { .. } => {
                (Some(retry.since), None)
            }
            _ => (None, None),
        },
        (None, None) => (None, None),
    };
    let after = |at: Option<Timestamp>| at.map(|at| at.max(target.released_at));
    Hops { fetched: after(fetched), verified: after(verified), ..announced(target) }
}

/// Returns a note about an object, with the sentence of its reason.
pub(super) fn note(key: &Key, reason: Reason) -> ObjectNote {
    ObjectNote { object: object_ref(key), message: reason.message(), reason }
}

/// Returns a note about a failed request.
pub(super) fn failure_note(key: &Key, failure: &Failure) -> ObjectNote {
    let Failure { reason, message, .. } = failure.clone();
    ObjectNote { object: object_ref(key), reason, message }
}

/// Names the first object; counts the others.
pub(super) fn summary(notes: &[ObjectNote]) -> Message {
    match notes {
        [] => Message::default(),
        [first, rest @ ..] => and_more(format!("{}: {}", first.object, first.message), rest.len()),
    }
}

pub(super) fn and_more(sentence: String, more: usize) -> Message {
    Message::new(if more == 0 { sentence } else { format!("{sentence} (and {more} more)") })
}

pub(super) fn report(
    situation: &Situation<'_>,
    record: &mut Record,
    transition: Transition,
    reason: &Reason,
    message: &Message,
    mut objects: Vec<ObjectNote>,
) {
    objects.truncate(NOTES);
    for note in &mut objects {
        note.message = note.message.clipped(LONGEST_NOTE);
    }
    let message = &message.clipped(LONGEST_MESSAGE);
    let sequence = situation.goal.target.sequence_id;
    // Each report is later than the one before, so that their times give their order.
    let at = record.reports.iter().map(|report| report.at + SignedDuration::from_micros(1)).max();
    let mut report = Report {
        id: EventId(Default::default()),
        stack_id: record.stack,
        sequence_id: sequence,
        transition: transition.clone(),
        at: at.map_or(microseconds(situation.now), |at| at.max(microseconds(situation.now))),
        hops: record.hops,
        reason: reason.clone(),
        message: message.clone(),
        objects,
        conditions: record.conditions.clone(),
        dropped: 0,
        ready: record.ready,
        total: record.total,
    };
    report.id = report.derived_id(situation.agent);
    record.outcome = Some(Outcome { transition, sequence, reason: reason.clone(), message: message.clone() });
    record.reports.push(report);
    // The number of reports is limited. The oldest stored report counts the dropped ones before it.
    while record.reports.len() > KEPT_REPORTS {
        let lost = record.reports.remove(0);
        record.reports[0].dropped += lost.dropped + 1;
    }
}

/// Truncates a time to microseconds, as the database does; otherwise the derived id would differ.
fn microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;

    use super::*;
    use crate::model::FailureClass;
    use crate::plan::fixtures::{AGENT, SEQUENCE, Stack, second};

    #[test]
    fn each_report_is_later_than_the_one_before_also_within_one_microsecond() {
        let stack = Stack::deployment();
        let mut record = stack.record.clone();
        for _ in 0..3 {
            let (reason, message) = (Reason::NotReady, Message::default());
            report(&stack.situation(1, 10), &mut record, Transition::Degraded, &reason, &message, Vec::new());
        }
        let times: Vec<_> = record.reports.iter().map(|report| report.at.duration_since(second(1))).collect();
        assert_eq!(times, [0, 1, 2].map(SignedDuration::from_micros));
    }

    #[test]
    fn f2_the_oldest_stored_report_counts_all_that_were_dropped_before_it() {
        let stack = Stack::deployment();
        let mut record = stack.record.clone();
        for _ in 0..KEPT_REPORTS + 3 {
            let (reason, message) = (Reason::NotReady, Message::default());
            report(&stack.situation(1, 10), &mut record, Transition::Degraded, &reason, &message, Vec::new());
        }
        assert_eq!((record.reports.len(), record.reports[0].dropped), (KEPT_REPORTS, 3));
        assert!(record.reports[1..].iter().all(|report| report.dropped == 0));
    }

    #[test]
    fn no_hop_that_the_broker_has_announced_is_before_the_one_before() {
        let mut target = Stack::deployment().goal.target;
        (target.published_at, target.targeted_at, target.released_at) = (second(1), second(2), second(3));
        let times = |target: &TargetStack| {
            let Hops { published, targeted, released, .. } = announced(target);
            [published, targeted, released].map(|at| at.map(|at| at.duration_since(second(0)).as_secs()))
        };
        assert_eq!(times(&target), [Some(1), Some(2), Some(3)]);
        target.published_at = second(5);
        assert_eq!(times(&target), [Some(5); 3]);
    }

    #[test]
    fn a_problem_is_reported_once_for_each_version_reason_and_message() {
        let mut stack = Stack::deployment();
        let blocked = |stack: &Stack, reason: &Reason, message: &str| {
            let plan =
                blocked(&stack.situation(1, 10), Stage::Prune, reason, &Message::new(message), Vec::new());
            assert_eq!(plan.waiting_for, Some(Message::new(message)));
            plan.steps.into_iter().find_map(|step| match step {
                Step::WriteRecord(record) => Some(*record),
                _ => None,
            })
        };
        let reason = Reason::WaitingForDeletion;
        stack.record = blocked(&stack, &reason, "one").expect("a report");
        assert!(blocked(&stack, &reason, "one").is_none());
        assert!(blocked(&stack, &reason, "two").is_some());
        assert!(blocked(&stack, &Reason::NotReady, "one").is_some());
        stack.record.outcome.as_mut().unwrap().sequence = SequenceId(SEQUENCE.0 - 1);
        assert!(blocked(&stack, &reason, "one").is_some(), "that was another version");
        stack.record.outcome.as_mut().unwrap().sequence = SEQUENCE;
        stack.record.version = None;
        assert!(blocked(&stack, &reason, "one").is_some(), "that was not stored");
    }

    #[test]
    fn a_report_about_a_version_that_is_not_recorded_yet_has_its_hops() {
        let mut stack = Stack::deployment();
        stack.record.sequence = SequenceId(SEQUENCE.0 - 1);
        let content = stack.content_mut();
        (content.fetched, content.verified) = (second(3), second(4));
        let plan = failed(&stack.situation(5, 10), &Reason::NotReady, Vec::new());
        let [Step::WriteRecord(record)] = plan.steps.as_slice() else { panic!("{plan:?}") };
        let hops = record.reports.last().expect("a report").hops;
        assert_eq!((hops.fetched, hops.verified), (Some(second(3)), Some(second(4))));
        assert_eq!(record.hops, stack.record.hops, "the record is about the version before");
    }

    #[test]
    fn j4_a_report_without_a_record_has_the_hops_and_numbers_of_its_own_version() {
        let mut stack = Stack::deployment();
        stack.record.hops.applied = Some(second(1));
        stack.record.ready = 1;
        let failure = Failure::new(FailureClass::Transient, Reason::ApiServerUnreachable);
        let target = stack.goal.target.clone();
        let of = |record: &Record| unrecorded(AGENT, &target, Some(record), &failure, second(2));
        let known = of(&stack.record);
        assert_eq!((known.hops.applied, known.ready, known.total), (Some(second(1)), 1, 1));
        stack.record.sequence = SequenceId(SEQUENCE.0 - 1);
        let other = of(&stack.record);
        assert_eq!((other.hops, other.ready, other.total), (announced(&target), 0, 0));
    }
}
