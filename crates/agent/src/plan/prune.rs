//! B5: after a complete apply, objects that the deployment object no longer contains are deleted.

use std::collections::BTreeMap;

use brokkr_api::reason::Reason;
use brokkr_manifest::Key;

use super::retry::sync;
use super::{dispose, report};
use crate::model::{Content, Entry, Plan, Record, Situation, Stage};

pub(super) fn plan(situation: &Situation<'_>, content: &Content) -> Option<Plan> {
    let record = situation.record?;
    let leftovers = leftovers(record, content);
    if leftovers.is_empty() {
        return None;
    }
    if let Some(plan) =
        sync(situation, Stage::Prune, leftovers.iter().map(|(key, entry)| (*key, &entry.kind)))
    {
        return Some(plan);
    }
    let goes =
        |key: &&&Key| !content.objects.contains_key(**key) && situation.other_stacks.successor(key).is_none();
    if let Some(plan) = hold_mass_prune(situation, record, leftovers.keys().filter(goes).count()) {
        return Some(plan);
    }
    dispose::all(situation, Stage::Prune, record, leftovers.keys().map(|key| (*key).clone()), |key| {
        dispose::needed_in(content, key)
    })
}

fn leftovers<'a>(record: &'a Record, content: &Content) -> BTreeMap<&'a Key, &'a Entry> {
    record.inventory.iter().filter(|(key, _)| !content.keeps(key)).collect()
}

/// Returns whether the record has objects that the content does not contain. After a complete prune,
/// these are objects that another stack will take over.
pub(super) fn lingers(record: &Record, content: &Content) -> bool {
    let has_hooks = || content.objects.values().any(|desired| desired.hook.is_some());
    if content.dormant.is_empty() && !has_hooks() {
        return record.inventory.len() > content.objects.len();
    }
    record.inventory.keys().any(|key| !content.keeps(key))
}

/// Returns whether a prune is so large that it waits for approval: of more than 50 objects and more than 30 % of the stack.
fn is_mass_prune(leftovers: usize, total: usize) -> bool {
    leftovers > 50 && leftovers * 10 > total * 3
}

fn hold_mass_prune(situation: &Situation<'_>, record: &Record, leftovers: usize) -> Option<Plan> {
    let target = &situation.goal.target;
    let approved = target
        .approvals
        .iter()
        .any(|approval| approval.sequence_id == target.sequence_id && approval.objects as usize >= leftovers);
    if !is_mass_prune(leftovers, record.inventory.len()) || approved {
        return None;
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let reason =
        Reason::PruneNeedsApproval { delete: count(leftovers), total: count(record.inventory.len()) };
    Some(report::blocked(situation, Stage::Prune, &reason, &reason.message(), Vec::new()))
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::envelope::Approval;

    use super::*;
    use crate::plan::fixtures::{SEQUENCE, Stack, key, second};

    /// Returns a stack whose new version lacks all objects but one.
    fn shrunk(leftovers: usize) -> Stack {
        let mut stack = Stack::of("", "ConfigMap");
        for number in 0..leftovers {
            let key = key("", "ConfigMap", Some("shop"), &format!("old-{number}"));
            stack.add(&key);
            stack.content_mut().objects.remove(&key);
        }
        stack
    }

    #[test]
    fn only_a_record_with_more_objects_than_the_content_depends_on_other_stacks() {
        for (leftovers, lingers_on) in [(0, false), (1, true)] {
            let stack = shrunk(leftovers);
            assert_eq!(lingers(&stack.record, &stack.content()), lingers_on, "{leftovers}");
        }
    }

    #[test]
    fn a_mass_prune_goes_on_if_it_is_approved_for_this_version_and_at_least_so_many_objects() {
        let mut stack = shrunk(60);
        let is_held = |stack: &Stack| hold_mass_prune(&stack.situation(1, 10), &stack.record, 60).is_some();
        assert!(is_held(&stack));
        let other = SequenceId(SEQUENCE.0 + 1);
        for (sequence_id, objects, held) in
            [(SEQUENCE, 59, true), (SEQUENCE, 60, false), (SEQUENCE, 61, false), (other, 61, true)]
        {
            let (approved_by, approved_at) = ("erin".into(), second(0));
            stack.goal.target.approvals = vec![Approval { sequence_id, objects, approved_by, approved_at }];
            assert_eq!(is_held(&stack), held, "{objects} objects of {sequence_id}");
        }
    }

    #[test]
    fn a_prune_waits_for_approval_if_it_deletes_more_than_fifty_objects_and_thirty_percent() {
        for (leftovers, total, waits) in
            [(50, 60, false), (51, 60, true), (51, 170, false), (51, 169, true), (3000, 10_000, false)]
        {
            assert_eq!(is_mass_prune(leftovers, total), waits, "{leftovers} of {total}");
        }
    }
}
