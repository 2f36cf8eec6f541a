//! The record, and the reports in it, that go with each transition.
//!
//! A report is stored in the record, with its time, before it is sent: made again after a crash, it
//! is the same report with the same id.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::envelope::TargetStack;
use brokkr_api::report::{GONE, Hops, NOTES, ObjectNote, Report, Transition};
use brokkr_api::{EventId, SequenceId};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::steps::{Plan, Stage, Step};
use super::types::{Content, Entry, Failure, Made, Origin, Outcome, Record, Seen, Situation, Wanted};
use super::{SLOW_AFTER, dispose, due, readiness};
use crate::resource::{Kind, is_ground};

pub(super) const LONGEST_MESSAGE: usize = 800;
const LONGEST_NOTE: usize = 400;
/// The most reports that are kept for a broker that cannot be reached.
const KEPT_REPORTS: usize = 50;

fn blank(s: &Situation<'_>) -> Record {
    let target = &s.goal.target;
    Record {
        project: target.project.clone(),
        stack: target.stack_id,
        stack_name: target.stack_name.clone(),
        sequence: target.sequence_id,
        removal: None,
        checksum: None,
        stamp: SequenceId::default(),
        applied: None,
        inventory: Default::default(),
        grant: None,
        made: Made::default(),
        hops: Hops::default(),
        outcome: None,
        conditions: Vec::new(),
        ready: 0,
        total: 0,
        reports: Vec::new(),
        session: s.session,
        version: None,
    }
}

fn current(s: &Situation<'_>) -> Record {
    let mut record = s.record.cloned().unwrap_or_else(|| blank(s));
    record.session = s.session;
    record
}

/// What `brokkr.io/sequence` says: it changes only together with the checksum.
pub(super) fn stamp_sequence(record: Option<&Record>, content: &Content) -> SequenceId {
    match record {
        Some(record) if record.checksum == Some(content.checksum) => record.stamp,
        _ => content.sequence,
    }
}

/// The superset of what was and what will be.
pub(super) fn intention<'a>(
    s: &Situation<'_>,
    content: &Content,
    existing: impl Fn(&Key) -> Option<&'a Seen>,
) -> Record {
    let mut record = current(s);
    let target = &s.goal.target;
    record.stamp = stamp_sequence(s.record, content);
    record.checksum = Some(content.checksum);
    if record.sequence != content.sequence || record.hops.published.is_none() || record.removal.is_some() {
        record.hops = Hops {
            fetched: Some(content.fetched.max(target.released_at)),
            verified: Some(content.verified.max(content.fetched).max(target.released_at)),
            ..announced(target)
        };
    }
    if record.made.sequence != content.sequence {
        let absent = |wanted: &&Arc<Wanted>| is_ground(&wanted.key) && existing(&wanted.key).is_none();
        let ground = content.objects.values().filter(absent).map(|wanted| wanted.key.clone()).collect();
        record.made = Made { sequence: content.sequence, ground };
    }
    record.grant.clone_from(&target.grant);
    record.sequence = content.sequence;
    record.removal = None;
    record.total = u32::try_from(content.objects.len()).unwrap_or(u32::MAX);
    for wanted in content.objects.values() {
        let seen = existing(&wanted.key);
        let entry = record.inventory.entry(wanted.key.clone()).or_insert_with(|| Entry {
            kind: wanted.kind.clone(),
            // Also if it carries our marks: whether it was there before them is not known without a record.
            origin: if seen.is_none() { Origin::Created } else { Origin::Adopted },
            uid: None,
            digest: None,
            fields: None,
        });
        entry.kind = wanted.kind.clone();
        // Another object than the one that was applied: nothing is known of it but its uid.
        if let Some(seen) = seen
            && entry.uid.as_ref() != Some(&seen.uid)
        {
            if is_news(s, &wanted.key, entry, seen) {
                let heritage = s.neighbours.holder(&wanted.key).and_then(|holder| holder.origin);
                entry.origin = heritage.unwrap_or(Origin::Adopted);
            }
            entry.uid = Some(seen.uid.clone());
            entry.digest = None;
            entry.fields = None;
        }
    }
    record
}

/// The record says that it will be created, or knows another object; this one was there before.
pub(super) fn is_news(s: &Situation<'_>, key: &Key, entry: &Entry, seen: &Seen) -> bool {
    entry.uid.as_ref() != Some(&seen.uid) && !seen.belongs_to(s.agent, s.goal.target.stack_id, key)
}

/// D1 is done: the namespaces are gone, or had to be left, and are not taken back a second time.
pub(super) fn undone(s: &Situation<'_>, record: &Record) -> Record {
    let mut record = Record { session: s.session, ..record.clone() };
    for key in std::mem::take(&mut record.made.ground) {
        if s.observed.seen(&key).is_none()
            && let Some(entry) = record.inventory.get_mut(&key)
        {
            (entry.uid, entry.digest, entry.fields) = (None, None, None);
        }
    }
    record
}

pub(super) fn removal_intention(s: &Situation<'_>) -> Record {
    let mut record = current(s);
    let target = &s.goal.target;
    record.removal = target.removal;
    record.sequence = record.sequence.max(target.sequence_id);
    record.applied = None;
    record.outcome = None;
    record.hops = announced(target);
    record
}

/// The hops that the broker tells of.
fn announced(target: &TargetStack) -> Hops {
    Hops {
        published: Some(target.published_at),
        targeted: Some(target.targeted_at.max(target.published_at)),
        released: Some(target.released_at.max(target.targeted_at)),
        ..Hops::default()
    }
}

/// Everything is written and what had to go is gone.
pub(super) fn settled(s: &Situation<'_>, content: &Content, record: &Record) -> Record {
    let mut record = Record { session: s.session, ..record.clone() };
    record.inventory.retain(|key, _| content.objects.contains_key(key) || dispose::lingers(s, key));
    record.applied = Some(content.sequence);
    let after = |earlier: Option<Timestamp>| earlier.map_or(s.now, |earlier| earlier.max(s.now));
    record.hops.applied = Some(after(record.hops.verified));
    record.hops.pruned = Some(after(record.hops.applied));
    let left: Vec<String> =
        s.progress.left.iter().map(|(key, why)| format!("left {}: {why}", key.for_people())).collect();
    let (ready, worst) = readiness::of(s, content);
    record.ready = ready;
    report(s, &mut record, Transition::Applied, "", &left.join("; "), Vec::new());
    if worst.is_none() {
        record.hops.healthy = Some(after(record.hops.pruned));
        report(s, &mut record, Transition::Healthy, "", "", Vec::new());
    }
    record
}

/// What another stack took over is no longer this one's.
pub(super) fn handed_over(s: &Situation<'_>, content: &Content, record: &Record) -> Record {
    let mut record = Record { session: s.session, ..record.clone() };
    record.inventory.retain(|key, _| content.objects.contains_key(key) || dispose::lingers(s, key));
    record
}

pub(super) fn removed(s: &Situation<'_>, record: &Record) -> Record {
    let mut record = Record { session: s.session, ..record.clone() };
    let inventory = std::mem::take(&mut record.inventory);
    let gone: Vec<ObjectNote> = inventory
        .iter()
        .filter(|(key, _)| !s.progress.left.contains_key(key))
        .filter_map(|(key, entry)| gone(key, entry))
        .collect();
    record.ready = 0;
    record.total = u32::try_from(gone.len()).unwrap_or(u32::MAX);
    record.hops.pruned = Some(record.hops.released.map_or(s.now, |released| released.max(s.now)));
    let notes: Vec<ObjectNote> = s
        .progress
        .left
        .iter()
        .map(|(key, why)| ObjectNote {
            object: key.for_people().to_string(),
            reason: "Left".into(),
            message: why.clone(),
        })
        .collect();
    let message = match notes.first() {
        None => String::new(),
        Some(note) => format!("left {}: {}", note.object, note.message),
    };
    // What is left is what people have to know; what is gone proves itself behind it, as far as there is room.
    let notes = [notes, gone].concat();
    // The removal's own sequence id, which an untargeted stack may share with what was applied.
    record.sequence = record.sequence.max(s.goal.target.sequence_id);
    report(s, &mut record, Transition::Removed, "", &message, notes);
    record
}

/// The receipt for one resource: that it was seen to be gone, and which one it was. None for what never was.
fn gone(key: &Key, entry: &Entry) -> Option<ObjectNote> {
    let uid = entry.uid.as_ref()?;
    Some(ObjectNote { object: key.for_people().to_string(), reason: GONE.into(), message: uid.to_string() })
}

/// Reported once for each distinct reason.
pub(super) fn failed(s: &Situation<'_>, reason: &str, notes: Vec<ObjectNote>) -> Plan {
    let message = summary(&notes);
    tell(s, Stage::Stopped, Transition::Failed, reason, &message, notes)
}

pub(super) fn blocked(
    s: &Situation<'_>,
    stage: Stage,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut plan = tell(s, stage, Transition::Blocked, reason, message, notes);
    plan.waiting_for = Some(message.to_owned());
    plan
}

/// Waits; what lasts longer than this is told once.
pub(super) fn wait(
    s: &Situation<'_>,
    stage: Stage,
    patience: SignedDuration,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let until = s.progress.waiting_since.unwrap_or(s.now) + patience;
    if due(until, s.now) {
        blocked(s, stage, reason, message, notes)
    } else {
        Plan::waiting(stage, message).wake(Some(until))
    }
}

/// Nothing can be said of these kinds before their watches are there.
pub(super) fn unwatched(s: &Situation<'_>, stage: Stage, kinds: BTreeSet<Kind>) -> Plan {
    let first = kinds.first().map(ToString::to_string).unwrap_or_default();
    let what = format!("still waits for the watch on {first}");
    Plan { watch: kinds, ..wait(s, stage, SLOW_AFTER, "CannotWatch", &what, Vec::new()) }
}

fn tell(
    s: &Situation<'_>,
    stage: Stage,
    transition: Transition,
    reason: &str,
    message: &str,
    notes: Vec<ObjectNote>,
) -> Plan {
    let mut record = current(s);
    let sequence = s.goal.target.sequence_id;
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
        record.hops = so_far(s);
    }
    report(s, &mut record, transition, reason, message, notes);
    record.hops = recorded;
    Plan::with(stage, vec![Step::WriteRecord(Box::new(record))])
}

/// The hops of a version that nothing was intended of yet.
fn so_far(s: &Situation<'_>) -> Hops {
    let target = &s.goal.target;
    let (fetched, verified) = match (&s.goal.content, &s.progress.fetch) {
        (Some(content), _) => (Some(content.fetched), Some(content.verified)),
        // Read, and its kinds are not to be had; or fetched, and not read.
        (None, Some(standing)) => match standing.failure.reason.as_str() {
            "UnknownKind" | "DiscoveryFailed" => (Some(standing.since), Some(standing.since)),
            "Unreadable" | "ReadDifferently" | "NotNamespaced" => (Some(standing.since), None),
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
    s: &Situation<'_>,
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
    let sequence = s.goal.target.sequence_id;
    // Each later than the one before, even within one decision: the order of times is the order of events.
    let at = record.reports.iter().map(|report| report.at + SignedDuration::from_micros(1)).max();
    let mut report = Report {
        id: EventId(Default::default()),
        stack_id: record.stack,
        sequence_id: sequence,
        transition,
        at: at.map_or(microseconds(s.now), |at| at.max(microseconds(s.now))),
        hops: record.hops,
        reason: reason.to_owned(),
        message: message.to_owned(),
        objects,
        conditions: record.conditions.clone(),
        dropped: 0,
        ready: record.ready,
        total: record.total,
    };
    report.id = report.derived_id(s.agent);
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
