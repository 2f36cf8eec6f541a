//! Checks rights and ownership before the first write, and records the intention: which objects the delivery
//! is going to write.

use std::sync::Arc;

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;

use super::retry::{existing, has_failed_for_good, requests, sync};
use super::stop::stop;
use super::timing::RELEASE_CHECKS;
use super::{record, report};
use crate::model::{Content, DesiredObject, Intent, Plan, Situation, Stage, Step};
use crate::resource::{KindName, is_prerequisite};

/// Reads Namespaces and definitions first, because only those that did not exist before may be deleted later.
pub(super) fn inspect_prerequisites(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    inspect(situation, content.objects.values().filter(|desired| is_prerequisite(&desired.key)))
}

/// Reads the other objects before anything is written, except those that cannot exist yet.
pub(super) fn inspect_rest(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let may_exist: Vec<_> =
        rest(content).filter(|desired| !presumed_absent(situation, content, desired)).collect();
    inspect(situation, may_exist.into_iter())
}

/// Reads objects that were presumed absent, if a dry run has shown that they exist.
pub(super) fn inspect_existing(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    inspect(situation, rest(content))
}

fn rest(content: &Content) -> impl Iterator<Item = &Arc<DesiredObject>> + Clone {
    content.objects.values().filter(|desired| !is_prerequisite(&desired.key))
}

/// Returns whether the object cannot exist yet, because this delivery creates its namespace or definition.
fn presumed_absent(situation: &Situation<'_>, content: &Content, desired: &DesiredObject) -> bool {
    let made = |key: &Key| {
        let made =
            situation.record.map(|record| &record.made).filter(|made| made.sequence == content.sequence);
        existing(situation, key).is_none() || made.is_some_and(|made| made.prerequisites.contains(key))
    };
    if let Some(definition) = content.definitions.get(&KindName::of(&desired.key)) {
        return made(definition);
    }
    let Some(namespace) = &desired.key.namespace else { return false };
    let key =
        Key { group: String::new(), kind: "Namespace".into(), namespace: None, name: namespace.clone() };
    content.objects.contains_key(&key) && made(&key)
}

fn inspect<'a>(
    situation: &Situation<'_>,
    desired: impl Iterator<Item = &'a Arc<DesiredObject>> + Clone,
) -> Option<Plan> {
    if let Some(plan) =
        sync(situation, Stage::Inspect, desired.clone().map(|desired| (&desired.key, &desired.kind)))
    {
        return Some(plan);
    }
    let unknown = desired.filter(|desired| {
        situation.observed.seen(&desired.key).is_none()
            && !situation.progress.lookups.objects.contains_key(&desired.key)
    });
    let read = |desired: &Arc<DesiredObject>| Step::ReadObject {
        key: desired.key.clone(),
        kind: desired.kind.clone(),
    };
    // If the dry run of an object was refused, the object is read: another owner may be the reason.
    let refused: Vec<Step> =
        unknown.clone().filter(|desired| is_refused(situation, &desired.key)).map(read).collect();
    if !refused.is_empty() {
        return Some(Plan::with(Stage::Inspect, refused));
    }
    requests(situation, Stage::Inspect, unknown, read)
}

/// Returns whether the dry run of the object was refused, and not the read itself.
fn is_refused(situation: &Situation<'_>, key: &Key) -> bool {
    let failures = &situation.progress.failures.objects;
    has_failed_for_good(situation, key) && failures.get(key).is_some_and(|retry| retry.is_of_apply())
}

enum Claim {
    Free,
    Undecided,
    Other(String),
}

/// Returns whether this stack may take the object. If another stack of this agent no longer wants it, our
/// apply takes it over; other owners keep theirs.
fn claim(situation: &Situation<'_>, key: &Key) -> Claim {
    // A stack records an object before it writes it, so the holder may be about to write the object.
    if let Some(holder) = situation.other_stacks.holder(key) {
        return match holder.intent {
            Intent::LetsGo => Claim::Free,
            Intent::Undecided => Claim::Undecided,
            Intent::Keeps => Claim::Other(format!("stack {}", holder.name)),
        };
    }
    let seen = existing(situation, key);
    let owner = seen.and_then(|seen| seen.other_owner(situation.agent, situation.goal.target.stack_id, key));
    owner.map_or(Claim::Free, |owner| Claim::Other(owner.to_string()))
}

/// C4: refuses objects that belong to another stack or agent.
pub(super) fn refuse(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let mut notes = Vec::new();
    let mut undecided = None;
    for key in content.objects.keys() {
        match claim(situation, key) {
            Claim::Free => {}
            Claim::Undecided => undecided = Some(key),
            Claim::Other(owner) => {
                notes.push(report::note(key, Reason::OwnedByOther { owner: Some(owner) }));
            }
        }
    }
    let plan = if let Some(key) = undecided {
        let what = format!(
            "{}: waiting for the stack that owns it to decide whether to keep it",
            key.display_name()
        );
        Plan::waiting(Stage::Inspect, what).wake(Some(situation.now + RELEASE_CHECKS))
    } else if notes.is_empty() {
        return None;
    } else {
        stop(situation, &notes[0].reason.clone(), notes)
    };
    Some(Plan { depends_on_others: true, ..plan })
}

/// Finds missing rights before the first write.
pub(super) fn check_rights(situation: &Situation<'_>, content: &Arc<Content>) -> Option<Plan> {
    match &situation.progress.lookups.missing_rights {
        None => Some(Plan::with(Stage::Inspect, vec![Step::CheckRights { content: content.clone() }])),
        Some(lacking) if lacking.is_empty() => None,
        Some(lacking) => Some(stop(situation, &lacking[0].reason, lacking.clone())),
    }
}

/// Records the union of old and new objects before the first write.
pub(super) fn intend(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let complete = situation.record.is_some_and(|record| {
        record.sequence == content.sequence
            && record.removal.is_none()
            && record.checksum == Some(content.checksum)
            && content.objects.keys().all(|key| {
                let entry = record.inventory.get(key);
                entry.is_some_and(|entry| {
                    !existing(situation, key).is_some_and(|seen| record::is_news(situation, key, entry, seen))
                })
            })
    });
    if complete {
        return None;
    }
    let record = record::intention(situation, content, |key| existing(situation, key));
    Some(Plan::with(Stage::Record, vec![Step::WriteRecord(Box::new(record))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixtures::Stack;

    #[test]
    fn a_delivery_stops_before_its_first_write_if_rights_are_missing() {
        let mut stack = Stack::deployment();
        let checked = |stack: &Stack| check_rights(&stack.situation(1, 10), &stack.content());
        let plan = checked(&stack).expect("a check");
        assert!(matches!(plan.steps.as_slice(), [Step::CheckRights { .. }]), "{plan:?}");
        stack.progress.lookups.missing_rights = Some(Vec::new());
        assert!(checked(&stack).is_none(), "all rights are there");
        let note = report::note(&stack.key, Reason::Fenced);
        stack.progress.lookups.missing_rights = Some(vec![note]);
        assert_eq!(checked(&stack).expect("a stop").stage, Stage::Stopped);
    }
}
