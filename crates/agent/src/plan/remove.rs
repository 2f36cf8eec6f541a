//! Removes a stack. Success is reported only when every object is observed to be gone.

use brokkr_api::report::Transition;

use super::{dispose, record, retry};
use crate::model::{Plan, Situation, Stage, Step};

pub(super) fn plan(situation: &Situation<'_>) -> Plan {
    let target = &situation.goal.target;
    let Some(record) = situation
        .record
        .filter(|record| record.removal == target.removal && record.sequence >= target.sequence_id)
    else {
        // E4, E5: only a stored removal starts a deletion.
        let record = record::removal_intention(situation);
        return Plan::with(Stage::Record, vec![Step::WriteRecord(Box::new(record))]);
    };
    let finished = record.outcome.as_ref().is_some_and(|outcome| {
        outcome.transition == Transition::Removed && outcome.sequence == target.sequence_id
    });
    if finished {
        return if record.reports.is_empty() {
            Plan::with(Stage::Done, vec![Step::DropRecord])
        } else {
            Plan::waiting(Stage::Done, "waiting for the broker to acknowledge the removal")
        };
    }
    let objects = record.inventory.iter().map(|(key, entry)| (key, &entry.kind));
    if let Some(plan) = retry::sync(situation, Stage::Remove, objects) {
        return plan;
    }
    dispose::all(situation, Stage::Remove, record, record.inventory.keys().cloned(), |_| None).unwrap_or_else(
        || {
            let record = record::removed(situation, record);
            Plan::with(Stage::Remove, vec![Step::WriteRecord(Box::new(record))])
        },
    )
}
