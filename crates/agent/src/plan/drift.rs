//! Stacks whose drift is reported, not repaired: what others have changed is read, named in the condition Drifted, and reported.

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{ConditionKind, ConditionStatus, NOTES, ObjectNote, Transition};
use brokkr_api::stacks::DriftPolicy;
use brokkr_manifest::Key;
use jiff::Timestamp;
use serde_json::Value;

use super::report::{LONGEST_MESSAGE, note, report};
use super::retry;
use super::timing::{REPAIR_REPORTS, due};
use crate::model::object::SeenState;
use crate::model::{Content, FoundEdits, Plan, Record, Situation, Step};

/// The number of objects that are read at the same time.
const READ_AT_ONCE: usize = 8;
/// The most fields of an object that are named.
const MOST_FIELDS: usize = 20;

/// Returns whether changes by others are reported, and not repaired.
pub(super) fn is_reported(situation: &Situation<'_>) -> bool {
    let target = &situation.goal.target;
    target.drift == DriftPolicy::Report && target.removal.is_none()
}

/// Adds reads of the changed objects to a plan of the steady state.
pub(super) fn look(situation: &Situation<'_>, content: &Content, mut plan: Plan) -> Plan {
    for (key, seen) in changed_objects(situation, content) {
        let Some(desired) = content.objects.get(key) else { continue };
        let is_known = situation.progress.lookups.drift.get(key).is_some_and(|(read, _)| *read == seen);
        if is_known || situation.busy.contains(key) {
            continue;
        }
        match situation.progress.failures.objects.get(key) {
            Some(retry) if !due(retry.retry_at, situation.now) => plan = plan.wake(Some(retry.retry_at)),
            _ if plan.steps.len() < READ_AT_ONCE => {
                plan.steps.push(Step::ReadDrift { desired: desired.clone(), seen });
            }
            _ => {}
        }
    }
    plan
}

/// Returns the applied objects of the content that differ from what was applied, or are gone, as they are observed.
fn changed_objects<'a>(
    situation: &'a Situation<'_>,
    content: &'a Content,
) -> impl Iterator<Item = (&'a Key, Option<SeenState>)> {
    let recorded = situation.record.into_iter().flat_map(|record| record.inventory.iter());
    let applied =
        recorded.filter(move |(key, entry)| entry.digest.is_some() && content.objects.contains_key(*key));
    applied.filter_map(move |(key, entry)| {
        let is_watched = situation.observed.synced(key) && !situation.suspensions.cover(key);
        if !is_watched
            || situation.is_completed_and_gone(key)
            || situation.was_completed_before_it_was_gone(key)
        {
            return None;
        }
        match situation.observed.seen(key) {
            None => Some((key, None)),
            Some(seen) if seen.deleting => None,
            Some(seen)
                if seen.other_owner(situation.agent, situation.goal.target.stack_id, key).is_some() =>
            {
                None
            }
            Some(seen) if entry.uid.as_ref() == Some(&seen.uid) && entry.fields == seen.fields => None,
            Some(seen) => Some((key, Some((seen.uid.clone(), seen.fields)))),
        }
    })
}

/// Returns what others have changed; none until all of it is read.
pub(super) fn changes(situation: &Situation<'_>) -> Option<Vec<ObjectNote>> {
    let content = situation.goal.content.as_ref()?;
    if content.objects.keys().any(|key| !situation.observed.synced(key)) {
        return None;
    }
    let mut notes = Vec::new();
    for (key, seen) in changed_objects(situation, content) {
        let read = situation.progress.lookups.drift.get(key).filter(|(read, _)| *read == seen);
        let reason = match read.map(|(_, found)| found) {
            Some(FoundEdits::Gone) => Reason::GoneByOthers,
            // Fields that the manifest yields.
            Some(FoundEdits::Patch(patch)) if patch.as_object().is_some_and(serde_json::Map::is_empty) => {
                continue;
            }
            Some(FoundEdits::Patch(patch)) => Reason::ChangedByOthers { fields: fields(patch) },
            Some(FoundEdits::Unknown) => Reason::ChangedByOthers { fields: Vec::new() },
            // It cannot be read for long: it is named without its fields.
            None if retry::is_overdue(situation, key) => Reason::ChangedByOthers { fields: Vec::new() },
            None => return None,
        };
        notes.push(note(key, reason));
    }
    Some(notes)
}

/// Returns the reason and message of the condition Drifted: it names the objects and their fields.
pub(super) fn summary(changes: &[ObjectNote]) -> (Reason, Message) {
    if changes.is_empty() {
        return (Reason::NoDrift, Reason::NoDrift.message());
    }
    let objects = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    let named: Vec<String> =
        changes.iter().map(|note| format!("{}: {}", note.object, note.message)).collect();
    let reason = Reason::DriftReported { objects };
    let message = reason.message_with(named.join("; ")).clipped(LONGEST_MESSAGE);
    (reason, message)
}

/// Whether there is something to report, and when it may be reported otherwise.
#[derive(Default)]
pub(super) struct DriftReport {
    pub is_news: bool,
    pub wake_at: Option<Timestamp>,
}

/// Reports when drift begins and ends at once, and other changes of it not too often.
pub(super) fn report_changes(situation: &Situation<'_>, record: &Record, next: &mut Record) -> DriftReport {
    let known = record.conditions.iter().find(|condition| condition.kind == ConditionKind::Drifted);
    let was_reported = known.is_some_and(|known| matches!(known.reason, Reason::DriftReported { .. }));
    if !is_reported(situation) && !was_reported {
        return DriftReport::default();
    }
    let changes = if is_reported(situation) { changes(situation) } else { Some(Vec::new()) };
    // Until everything is read, it is not known whether drift begins or ends.
    let Some(changes) = changes else { return DriftReport::default() };
    let (reason, message) = summary(&changes);
    if known.is_some_and(|known| known.message == message) || (changes.is_empty() && !was_reported) {
        return DriftReport::default();
    }
    let has_drifted = known.is_some_and(|known| known.status == ConditionStatus::True);
    let begins_or_ends = has_drifted == changes.is_empty();
    let free_at = situation.progress.repairs.reported_at.map(|last| last + REPAIR_REPORTS);
    if let Some(at) = free_at.filter(|at| !begins_or_ends && !due(*at, situation.now)) {
        return DriftReport { is_news: false, wake_at: Some(at) };
    }
    let keep = next.outcome.clone();
    let notes = changes.into_iter().take(NOTES).collect();
    report(situation, next, Transition::Drifted, &reason, &message, notes);
    next.outcome = keep;
    DriftReport { is_news: true, wake_at: None }
}

/// Returns the paths of the fields in a patch, such as `spec.replicas`.
fn fields(patch: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    collect(patch, String::new(), &mut paths);
    let more = paths.len().saturating_sub(MOST_FIELDS);
    paths.truncate(MOST_FIELDS);
    if more > 0 {
        paths.push(format!("and {more} more"));
    }
    paths
}

fn collect(patch: &Value, path: String, paths: &mut Vec<String>) {
    match patch {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let is_plain =
                    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
                let below = match (path.is_empty(), is_plain) {
                    (true, _) => name.clone(),
                    (false, true) => format!("{path}.{name}"),
                    (false, false) => format!("{path}[{name}]"),
                };
                collect(value, below, paths);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.get("name").is_some_and(Value::is_string)) => {
            for item in items {
                let Some(fields) = item.as_object() else { continue };
                let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
                let path = format!("{path}[name={name}]");
                let rest: serde_json::Map<String, Value> = fields
                    .iter()
                    .filter(|(field, _)| !matches!(field.as_str(), "name" | "$patch"))
                    .map(|(field, value)| (field.clone(), value.clone()))
                    .collect();
                if rest.is_empty() { paths.push(path) } else { collect(&Value::Object(rest), path, paths) }
            }
        }
        _ => paths.push(path),
    }
}

#[cfg(test)]
mod tests;
