//! The plan: a pure function of the desired state, the record and the observed state.
//!
//! It returns the requests that may be made now. Their results are absorbed, and the plan is made again. Nothing here
//! waits, sends or reads a clock, so that `crates/sim` can simulate a crash after every step. What must survive a crash
//! is in the record; [`Progress`](crate::model::Progress) only avoids repeated requests.
//!
//! From top to bottom; a file imports only files below it:
//!
//! | file                 | contents                                                               |
//! |----------------------|------------------------------------------------------------------------|
//! | `deliver`            | the stages of a delivery, one after the other                          |
//! | `remove`             | the removal of a stack, until all objects are gone                     |
//! | `suspend`            | what is left alone for some time, and what others change meanwhile     |
//! | `steady`             | repairs of drift, sweeps and health once everything is applied         |
//! | `prune`              | deletes objects that the new version no longer contains                |
//! | `prerequisites`      | Namespaces and definitions before everything else                      |
//! | `preflight`          | rights and ownership before the first write                            |
//! | `write`              | dry runs, then server-side apply, in order                             |
//! | `waves`              | waves that wait until the one before is ready                          |
//! | `open`               | what is still to be written                                            |
//! | `stop`               | stops a delivery, and deletes its new Namespaces                       |
//! | `record`             | builds the record to write at each transition                          |
//! | `dispose`            | how to dispose of an object that is no longer needed (B6, C5, C6)      |
//! | `view`, `conditions` | the conditions of the stack as a whole (F5)                            |
//! | `readiness`          | which objects are not ready, and why                                   |
//! | `jobs`               | Jobs that are steps: each runs once for each digest                    |
//! | `absorb`             | applies the result of a step to record and progress                    |
//! | `contest`            | drift, and objects that others change again after every repair         |
//! | `retry`              | when a failed request is made again, and when it is reported           |
//! | `report`             | builds the reports                                                     |
//! | `timing`             | intervals and time limits                                              |
//! | `fixtures`           | a stack for tests                                                      |

pub mod absorb;
pub mod conditions;
mod contest;
mod deliver;
mod dispose;
mod drift;
#[cfg(test)]
mod fixtures;
mod jobs;
mod open;
mod preflight;
mod prerequisites;
mod prune;
mod readiness;
mod record;
mod remove;
pub mod report;
pub mod retry;
pub mod steady;
mod stop;
mod suspend;
pub mod timing;
mod view;
mod waves;
mod write;

use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::ObjectNote;

use crate::grant;
use crate::model::{Plan, Situation, Stage, Step};

/// Returns what to do now.
#[must_use]
pub fn plan(situation: &Situation<'_>) -> Plan {
    let mut plan = decide(situation);
    // What is suspended is left alone, whatever was decided.
    plan.steps
        .retain(|step| !step.is_write() || !step.key().is_some_and(|key| situation.suspensions.cover(key)));
    if plan.steps.is_empty() && situation.busy.is_empty() {
        plan.steps
            .extend(record::with_new_grant(situation).map(|record| Step::WriteRecord(Box::new(record))));
    }
    view::with_conditions(situation, plan)
}

fn decide(situation: &Situation<'_>) -> Plan {
    if let Some(frozen) = freeze(situation) {
        frozen
    } else if let Some(plan) = suspend::plan(situation) {
        plan
    } else if situation.suspensions.cover_stack() {
        hold(situation)
    } else if situation.goal.target.removal.is_some() {
        remove::plan(situation)
    } else {
        let plan = deliver::plan(situation);
        let idle = plan.steps.is_empty() && plan.waiting_for.is_some() && plan.stage != Stage::Steady;
        if idle || matches!(plan.stage, Stage::Fetch | Stage::Stopped) {
            steady::keep_up(situation, plan)
        } else {
            plan
        }
    }
}

/// Leaves the whole stack alone. If it is applied, its health is still observed and reported.
fn hold(situation: &Situation<'_>) -> Plan {
    let target = &situation.goal.target;
    let content = situation.goal.content.as_ref();
    if target.removal.is_none() {
        match content {
            // Reads the content; writes no object.
            None => return deliver::plan(situation),
            Some(content) => {
                if let Some(record) = steady::applied(situation, content) {
                    return steady::plan(situation, content, record);
                }
            }
        }
    }
    let reason = Reason::Suspended;
    report::blocked(situation, Stage::Suspended, &reason, &reason.message(), Vec::new())
}

/// Returns whether nothing of the stack may be written.
#[must_use]
pub fn is_frozen(situation: &Situation<'_>) -> bool {
    freeze(situation).is_some()
}

/// Freezes a stack that its grant does not cover, or that contains the agent's own namespace: nothing is written, deleted
/// or repaired.
fn freeze(situation: &Situation<'_>) -> Option<Plan> {
    // A9: the broker learns of the stack before its first record.
    if !situation.held && situation.record.is_none() {
        return None;
    }
    let target = &situation.goal.target;
    let notes = match grant::acting(target) {
        Err(reason) => {
            let (kind, name) = ("stack".to_owned(), target.stack_name.clone());
            let object = ObjectRef { kind, name, ..ObjectRef::default() };
            vec![ObjectNote { object, message: reason.message(), reason }]
        }
        Ok(_) => {
            let desired = situation.goal.content.iter().flat_map(|content| content.objects.keys());
            let had = situation.record.into_iter().flat_map(|record| record.inventory.keys());
            let own = grant::in_own_namespace(situation.home, desired.clone());
            own.into_iter().chain(grant::refused(target.grant.as_ref(), desired.chain(had))).collect()
        }
    };
    let reason = notes.first()?.reason.clone();
    let message = report::summary(&notes);
    Some(report::blocked(situation, Stage::Stopped, &reason, &message, notes))
}
