//! The delivery of a stack: from the announcement to the steady state, one stage after the other.

use brokkr_api::reason::ObjectRef;
use brokkr_api::report::ObjectNote;

use super::timing::due;
use super::{preflight, prerequisites, prune, record, report, retry, steady, stop, suspend, write};
use crate::model::{Content, FailureClass, Plan, Situation, Stage, Step};

pub(super) fn plan(situation: &Situation<'_>) -> Plan {
    if !situation.held {
        return Plan::with(Stage::Announce, vec![Step::Hold]);
    }
    let Some(content) = &situation.goal.content else {
        return fetch(situation);
    };
    if let Some(record) = steady::applied(situation, content) {
        return steady::plan(situation, content, record);
    }
    if stop::is_taken_back(situation, content) {
        return stop::undo(situation).unwrap_or_else(|| stop::wait_for_next_cycle(situation));
    }
    // Rights are checked first: the agent would wait forever for the watch of a kind that it may not watch.
    preflight::check_rights(situation, content)
        .or_else(|| preflight::inspect_prerequisites(situation, content))
        .or_else(|| preflight::inspect_rest(situation, content))
        .or_else(|| preflight::refuse(situation, content))
        .or_else(|| preflight::intend(situation, content))
        .or_else(|| prerequisites::apply(situation, content))
        .or_else(|| write::validate(situation, content))
        // A dry run may have shown that an object exists: it may belong to another stack.
        .or_else(|| preflight::inspect_existing(situation, content))
        .or_else(|| preflight::refuse(situation, content))
        .or_else(|| write::stop_if_invalid(situation, content))
        .or_else(|| preflight::intend(situation, content))
        .or_else(|| write::apply(situation, content))
        .or_else(|| suspend::wait_for_objects(situation, content))
        .or_else(|| prune::plan(situation, content))
        .unwrap_or_else(|| settle(situation, content))
}

/// Fetches the content. A failure is reported at once if it is permanent, otherwise after three attempts.
fn fetch(situation: &Situation<'_>) -> Plan {
    match &situation.progress.failures.fetch {
        Some(retry) if !due(retry.retry_at, situation.now) => {
            let failure = &retry.failure;
            let lasting = failure.class == FailureClass::Permanent || retry.attempts >= 3;
            let plan = if lasting {
                let note = ObjectNote {
                    object: ObjectRef {
                        kind: "deployment object".to_owned(),
                        name: situation.goal.target.sequence_id.to_string(),
                        ..ObjectRef::default()
                    },
                    reason: failure.reason.clone(),
                    message: failure.message.clone(),
                };
                report::failed(situation, &failure.reason, vec![note])
            } else {
                Plan::waiting(Stage::Fetch, failure.message.clone())
            };
            retry::block_on_prerequisite(plan, failure).wake(Some(retry.retry_at))
        }
        _ => Plan::with(Stage::Fetch, vec![Step::Fetch]),
    }
}

fn settle(situation: &Situation<'_>, content: &Content) -> Plan {
    let Some(record) = situation.record else { return Plan::new(Stage::Record) };
    let record = record::settled(situation, content, record);
    Plan::with(Stage::Finish, vec![Step::WriteRecord(Box::new(record))])
}
