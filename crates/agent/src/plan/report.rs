//! Reports: what is said about a stack, and when.
//!
//! A report is stored in the record, with its time, before it is sent: made again after a crash, it
//! is the same report with the same id.

use std::collections::BTreeSet;

use brokkr_api::EventId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::report::{Hops, NOTES, ObjectNote, Report, Transition};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::timing::{SLOW_AFTER, due};
use crate::model::{Failure, Outcome, Plan, Record, Situation, Stage, Step};
use crate::resource::Kind;

pub(super) const LONGEST_MESSAGE: usize = 800;
const LONGEST_NOTE: usize = 400;
/// The most reports that are kept for a broker that cannot be reached.
const KEPT_REPORTS: usize = 50;

/// The hops that the broker tells of.
pub(super) fn announced(target: &TargetStack) -> Hops {
    Hops {
        published: Some(target.published_at),
        targeted: Some(target.targeted_at.max(target.published_at)),
        released: Some(target.released_at.max(target.targeted_at)),
        ..Hops::default()
    }
}

/// Reported once for each distinct reason.
pub(super) fn failed(situation: &Situation<'_>, reason: &str, notes: Vec<ObjectNote>) -> Plan {
    let message = summary(&notes);
    tell(situation, Stage::Stopped, Transition::Failed, reason, &message, notes)
}

pub(super) fn blocked(
    situation: &Situation<'_>,
    stage: Stage,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut plan = tell(situation, stage, Transition::Blocked, reason, message, notes);
    plan.waiting_for = Some(message.to_owned());
    plan
}

/// Waits; what lasts longer than this is told once.
pub(super) fn wait(
    situation: &Situation<'_>,
    stage: Stage,
    patience: SignedDuration,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let until = situation.progress.waiting_since.unwrap_or(situation.now) + patience;
    if due(until, situation.now) {
        blocked(situation, stage, reason, message, notes)
    } else {
        Plan::waiting(stage, message).wake(Some(until))
    }
}

/// Nothing can be said of these kinds before their watches are there.
pub(super) fn unwatched(situation: &Situation<'_>, stage: Stage, kinds: BTreeSet<Kind>) -> Plan {
    let first = kinds.first().map(ToString::to_string).unwrap_or_default();
    let what = format!("still waits for the watch on {first}");
    Plan { watch: kinds, ..wait(situation, stage, SLOW_AFTER, "CannotWatch", &what, Vec::new()) }
}

fn tell(
    situation: &Situation<'_>,
    stage: Stage,
    transition: Transition,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut record = situation.current_record();
    let sequence = situation.goal.target.sequence_id;
    let message = &clip(message, LONGEST_MESSAGE);
    let already = record.version.is_some()
        && record.outcome.as_ref().is_some_and(|outcome| {
            outcome.transition == transition
                && outcome.sequence == sequence
                && outcome.reason == reason
                && outcome.message == *message
        });
    if already {
        return Plan::waiting(stage, message);
    }
    // The record may still be about the version before: its hops are not those of this one.
    let recorded = record.hops;
    if record.sequence != sequence || record.hops.published.is_none() {
        record.hops = so_far(situation);
    }
    report(situation, &mut record, transition, reason, message, notes);
    record.hops = recorded;
    Plan::with(stage, vec![Step::WriteRecord(Box::new(record))])
}

/// The hops of a version that nothing was intended of yet.
fn so_far(situation: &Situation<'_>) -> Hops {
    let target = &situation.goal.target;
    let (fetched, verified) = match (&situation.goal.content, &situation.progress.failures.fetch) {
        (Some(content), _) => (Some(content.fetched), Some(content.verified)),
        // Read, and its kinds are not to be had; or fetched, and not read.
        (None, Some(retry)) => match retry.failure.reason.as_str() {
            "UnknownKind" | "DiscoveryFailed" => (Some(retry.since), Some(retry.since)),
            "Unreadable" | "ReadDifferently" | "NotNamespaced" => (Some(retry.since), None),
            _ => (None, None),
        },
        (None, None) => (None, None),
    };
    let after = |at: Option<Timestamp>| at.map(|at| at.max(target.released_at));
    Hops { fetched: after(fetched), verified: after(verified), ..announced(target) }
}

/// What went wrong with one resource.
pub(super) fn note(key: &Key, failure: &Failure) -> ObjectNote {
    ObjectNote {
        object: key.for_people().to_string(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
    }
}

pub(super) fn summary(notes: &[ObjectNote]) -> String {
    match notes {
        [] => String::new(),
        [one] => format!("{}: {}", one.object, one.message),
        [first, rest @ ..] => format!("{}: {} (and {} more)", first.object, first.message, rest.len()),
    }
}

pub(super) fn report(
    situation: &Situation<'_>,
    record: &mut Record,
    transition: Transition,
    reason: &str,
    message: &str,
    mut objects: Vec<ObjectNote>,
) {
    objects.truncate(NOTES);
    for note in &mut objects {
        note.message = clip(&note.message, LONGEST_NOTE);
    }
    let message = &clip(message, LONGEST_MESSAGE);
    let sequence = situation.goal.target.sequence_id;
    // Each later than the one before, even within one decision: the order of times is the order of events.
    let at = record.reports.iter().map(|report| report.at + SignedDuration::from_micros(1)).max();
    let mut report = Report {
        id: EventId(Default::default()),
        stack_id: record.stack,
        sequence_id: sequence,
        transition,
        at: at.map_or(microseconds(situation.now), |at| at.max(microseconds(situation.now))),
        hops: record.hops,
        reason: reason.to_owned(),
        message: message.to_owned(),
        objects,
        conditions: record.conditions.clone(),
        dropped: 0,
        ready: record.ready,
        total: record.total,
    };
    report.id = report.derived_id(situation.agent);
    record.outcome =
        Some(Outcome { transition, sequence, reason: reason.to_owned(), message: message.to_owned() });
    record.reports.push(report);
    // Bounded; what had to go leaves a mark on what came after it.
    while record.reports.len() > KEPT_REPORTS {
        let lost = record.reports.remove(0);
        record.reports[0].dropped += lost.dropped + 1;
    }
}

/// One long text must not hold up everything else that is to be reported.
pub(super) fn clip(text: &str, longest: usize) -> String {
    let mut clipped: String = text.chars().filter(|character| *character != '\0').take(longest).collect();
    if text.chars().count() > longest {
        clipped.push('…');
    }
    clipped
}

/// The database keeps microseconds; a time that is cut on its way would change the derived id.
fn microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}
