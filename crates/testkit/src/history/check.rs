//! The numbered invariants between the clients' history and the final state.

mod recency;
mod refusals;
mod targets;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use brokkr_api::{EventId, SequenceId, StackId};

use super::record::{Acknowledgement, Change, History, Operation, Outcome};
use super::truth::{ObjectRow, Truth};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `S4`
    pub rule: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Returns all violations.
pub fn check(history: &History, truth: &Truth) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut violation = |rule, what| found.push(Violation { rule, what });
    acknowledged_objects_exist(history, truth, &mut violation);
    one_result_per_key(history, &mut violation);
    no_unacknowledged_objects(history, truth, &mut violation);
    sequence_ids_follow_real_time(history, &mut violation);
    targets::acknowledged_targets_are_stored(history, truth, &mut violation);
    refusals::refused_changes_are_not_made(history, truth, &mut violation);
    refusals::refusals_are_explained(history, &mut violation);
    recency::positions_never_decrease(history, &mut violation);
    recency::responses_reflect_the_position_of_the_request(history, truth, &mut violation);
    newest_is_highest(truth, &mut violation);
    reports_exist_once(history, truth, &mut violation);
    one_message_per_object(truth, &mut violation);
    submissions_are_audited_once(history, truth, &mut violation);
    served_versions_never_decrease(history, &mut violation);
    replicas_converge(truth, &mut violation);
    found
}

type ReportViolation<'a> = dyn FnMut(&'static str, String) + 'a;

/// S3, S4: every acknowledged object exists as it was acknowledged.
fn acknowledged_objects_exist(history: &History, truth: &Truth, violation: &mut ReportViolation<'_>) {
    let rows: HashMap<SequenceId, &ObjectRow> = truth.objects.iter().map(|row| (row.sequence, row)).collect();
    for operation in &history.operations {
        let Some((stack, sequence, content)) = operation.object() else { continue };
        if let Change::Submit { content: submitted, .. } = &operation.change
            && *submitted != content
        {
            violation("S3", format!("{sequence} was acknowledged with different content than submitted"));
        }
        match rows.get(&sequence) {
            None => {
                violation("S4", format!("{sequence} was acknowledged and is lost: {:?}", operation.change));
            }
            Some(row) if row.stack != stack || row.content != content || row.checksum != content => {
                violation("S3", format!("{sequence} is not what was acknowledged"));
            }
            Some(_) => {}
        }
    }
}

/// S4: an idempotency key has one result, and two keys never have the same object. Deletions are an
/// exception: deleting a stack again returns the same deletion marker.
fn one_result_per_key(history: &History, violation: &mut ReportViolation<'_>) {
    let mut key_of: HashMap<SequenceId, &Operation> = HashMap::new();
    for operation in &history.operations {
        let mut sequences = operation.attempts.iter().filter_map(|attempt| match &attempt.outcome {
            Outcome::Acknowledged(Acknowledgement::Object { sequence, .. }) => Some(*sequence),
            _ => None,
        });
        let Some(first) = sequences.next() else { continue };
        if let Some(other) = sequences.find(|sequence| *sequence != first) {
            violation("S4", format!("one key, two objects: {first} and {other}"));
        }
        let deletes = |operation: &Operation| matches!(operation.change, Change::Delete { .. });
        if let Some(other) = key_of.insert(first, operation)
            && !(deletes(other) && deletes(operation))
        {
            violation("S4", format!("{first} was given to two keys: {} and {}", other.key, operation.key));
        }
    }
}

/// S4: every object was acknowledged, unless the outcome of an operation is unknown.
fn no_unacknowledged_objects(history: &History, truth: &Truth, violation: &mut ReportViolation<'_>) {
    let acknowledged: HashSet<SequenceId> =
        history.operations.iter().filter_map(|operation| Some(operation.object()?.1)).collect();
    let mut open: Vec<&Operation> = history
        .operations
        .iter()
        .filter(|operation| operation.acknowledged().is_none() && !operation.refused())
        .collect();
    for row in truth.objects.iter().filter(|row| !acknowledged.contains(&row.sequence)) {
        let explains = |operation: &&Operation| match &operation.change {
            Change::Submit { content, .. } => *content == row.content,
            Change::RollBack { .. } => !row.is_deletion_marker,
            Change::Delete { .. } => row.is_deletion_marker,
            Change::Target { .. } | Change::Report { .. } => false,
        };
        match open.iter().position(explains) {
            Some(index) => drop(open.swap_remove(index)),
            None => {
                violation("S4", format!("{} exists, but was not acknowledged to any client", row.sequence));
            }
        }
    }
}

/// S5: within a stack, an operation that was acknowledged before another began has the lower sequence id.
fn sequence_ids_follow_real_time(history: &History, violation: &mut ReportViolation<'_>) {
    let mut by_stack: BTreeMap<StackId, Vec<(u64, u64, SequenceId)>> = BTreeMap::new();
    for operation in &history.operations {
        if let (Some((stack, sequence, _)), Some((_, ended))) = (operation.object(), operation.acknowledged())
        {
            by_stack.entry(stack).or_default().push((operation.began(), ended, sequence));
        }
    }
    for (stack, mut objects) in by_stack {
        objects.sort_unstable();
        for (index, (_, ended, sequence)) in objects.iter().enumerate() {
            let later = objects[index + 1..].iter().filter(|(began, ..)| began > ended);
            for (.., other) in later.filter(|(.., other)| other < sequence) {
                violation(
                    "S5",
                    format!("stack {stack}: {other} is lower, but began after {sequence} was acknowledged"),
                );
            }
        }
    }
}

/// S5: sequence ids are unique, and the newest object of a stack has its highest one.
fn newest_is_highest(truth: &Truth, violation: &mut ReportViolation<'_>) {
    let mut sequences = HashSet::new();
    for row in truth.objects.iter().filter(|row| !sequences.insert(row.sequence)) {
        violation("S5", format!("{} exists twice", row.sequence));
    }
    for stack in &truth.stacks {
        let of_stack = truth.objects.iter().filter(|row| row.stack == stack.id);
        let highest = of_stack.map(|row| row.sequence).max();
        if highest != stack.newest {
            violation(
                "S5",
                format!("stack {}: the newest is {:?}, the highest {highest:?}", stack.id, stack.newest),
            );
        }
    }
}

/// Returns whether the stack may have lost a target before this time: its targets were changed, it was deleted, or the
/// outcome of such a change is not known. The agents of these tests do not announce stacks, so the broker accepts
/// their reports only while the stack targets them.
fn may_be_lost(history: &History, stack: StackId, before: u64) -> bool {
    let changes =
        |operation: &&Operation| matches!(operation.change, Change::Target { .. } | Change::Delete { .. });
    history.operations.iter().filter(changes).filter(|operation| operation.began() <= before).any(
        |operation| match operation.acknowledged() {
            Some((
                Acknowledgement::Object { stack: changed, .. }
                | Acknowledgement::Targets { stack: changed, .. },
                _,
            )) => *changed == stack,
            Some((Acknowledgement::Receipt { .. }, _)) => false,
            None => !operation.refused(),
        },
    )
}

/// S12: every acknowledged report exists, and every existing report was sent and exists once.
fn reports_exist_once(history: &History, truth: &Truth, violation: &mut ReportViolation<'_>) {
    let mut counts: HashMap<EventId, usize> = HashMap::new();
    for event in &truth.events {
        *counts.entry(*event).or_default() += 1;
    }
    let mut sent = HashSet::new();
    for operation in &history.operations {
        let Change::Report { reports, .. } = &operation.change else { continue };
        sent.extend(reports.iter().copied());
        let Some((Acknowledgement::Receipt { durable, refused }, ended)) = operation.acknowledged() else {
            continue;
        };
        for (report, stack) in refused.iter().filter(|(_, stack)| !may_be_lost(history, *stack, ended)) {
            violation(
                "S12",
                format!("the report {report} was refused, but {stack} always targeted the agent"),
            );
        }
        for report in durable.iter().filter(|report| !counts.contains_key(report)) {
            violation("S12", format!("the report {report} was acknowledged and is lost"));
        }
        let is_refused = |report: &EventId| refused.iter().any(|(id, _)| id == report);
        for report in reports.iter().filter(|report| !durable.contains(report) && !is_refused(report)) {
            violation("S12", format!("the receipt leaves out the report {report}"));
        }
    }
    for (event, count) in counts {
        if count > 1 {
            violation("S12", format!("the report {event} was counted {count} times"));
        }
        if !sent.contains(&event) {
            violation("S12", format!("no agent sent the report {event}"));
        }
    }
}

/// S13: there is one message for every object, and no others.
fn one_message_per_object(truth: &Truth, violation: &mut ReportViolation<'_>) {
    let Some(messages) = &truth.messages else { return };
    let mut counts: HashMap<SequenceId, usize> = HashMap::new();
    for sequence in messages {
        *counts.entry(*sequence).or_default() += 1;
    }
    for row in &truth.objects {
        match counts.remove(&row.sequence) {
            Some(1) => {}
            count => {
                let count = count.unwrap_or_default();
                violation("S13", format!("{} has {count} messages to the webhook", row.sequence));
            }
        }
    }
    for sequence in counts.keys() {
        violation("S13", format!("the webhook has a message for {sequence}, which does not exist"));
    }
}

/// S20: every submission that took effect is in the audit log, once.
fn submissions_are_audited_once(history: &History, truth: &Truth, violation: &mut ReportViolation<'_>) {
    let submissions = || {
        let is_submission = |operation: &&Operation| matches!(operation.change, Change::Submit { .. });
        history.operations.iter().filter(is_submission)
    };
    let done = submissions().filter(|operation| operation.acknowledged().is_some()).count();
    let open = submissions().filter(|one| one.acknowledged().is_none() && !one.refused()).count();
    let audited = truth.audited_submissions;
    if audited < done || audited > done + open {
        violation("S20", format!("{done} submissions were acknowledged, {audited} are in the audit log"));
    }
}

/// S2: the versions that replicas serve to an agent never decrease.
fn served_versions_never_decrease(history: &History, violation: &mut ReportViolation<'_>) {
    let mut highest: HashMap<_, SequenceId> = HashMap::new();
    for seen in &history.served {
        for (stack, sequence) in &seen.stacks {
            let before = highest.entry((seen.agent, *stack)).or_insert(*sequence);
            if *sequence < *before {
                violation(
                    "S2",
                    format!(
                        "replica {} sent agent {} from {before} back to {sequence}",
                        seen.replica, seen.agent
                    ),
                );
            }
            *before = (*before).max(*sequence);
        }
    }
}

/// L1: in the end, every replica serves every agent the state of the database.
fn replicas_converge(truth: &Truth, violation: &mut ReportViolation<'_>) {
    for view in &truth.views {
        let wanted = truth.wanted(view.agent);
        if view.stacks != wanted {
            let (replica, agent) = (view.replica, view.agent);
            violation("L1", format!("replica {replica} serves {agent} {:?}, not {wanted:?}", view.stacks));
        }
    }
}
