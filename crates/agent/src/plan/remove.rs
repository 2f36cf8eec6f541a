//! A stack to remove: everything of it is deleted, and success is told only when it is seen to be gone.

use std::collections::BTreeSet;

use brokkr_api::report::Transition;

use super::steps::{Plan, Stage, Step};
use super::types::Situation;
use super::{dispose, outcome};
use crate::resource::Kind;

pub(super) fn plan(s: &Situation<'_>) -> Plan {
    let target = &s.goal.target;
    let Some(record) =
        s.record.filter(|record| record.removal == target.removal && record.sequence >= target.sequence_id)
    else {
        // E4, E5: only what is stored starts a removal, and it is stored before the first deletion.
        let record = outcome::removal_intention(s);
        return Plan::with(Stage::Intend, vec![Step::WriteRecord(Box::new(record))]);
    };
    let finished = record.outcome.as_ref().is_some_and(|outcome| {
        outcome.transition == Transition::Removed && outcome.sequence == target.sequence_id
    });
    if finished {
        return if record.reports.is_empty() {
            Plan::with(Stage::Done, vec![Step::DropRecord])
        } else {
            Plan::waiting(Stage::Done, "the broker to acknowledge the removal")
        };
    }
    let missing: BTreeSet<Kind> = record
        .inventory
        .values()
        .map(|entry| &entry.kind)
        .filter(|kind| !s.observed.synced(&kind.name()))
        .cloned()
        .collect();
    if !missing.is_empty() {
        return outcome::unwatched(s, Stage::Remove, missing);
    }
    dispose::all(s, Stage::Remove, record, record.inventory.keys().cloned(), |_| None).unwrap_or_else(|| {
        let record = outcome::removed(s, record);
        Plan::with(Stage::Remove, vec![Step::WriteRecord(Box::new(record))])
    })
}
