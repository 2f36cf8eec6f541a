//! A stack to have: from the announcement to the steady state, one stage after the other.

use brokkr_api::report::ObjectNote;

use super::steps::{Plan, Stage, Step};
use super::types::{Content, FailureClass, Situation};
use super::{attempt, due, ground, outcome, ownership, prune, steady, write};

pub(super) fn plan(s: &Situation<'_>) -> Plan {
    if !s.held {
        return Plan::with(Stage::Announce, vec![Step::Hold]);
    }
    let Some(content) = &s.goal.content else {
        return fetch(s);
    };
    if let Some(record) = s.record
        && record.applied == Some(content.sequence)
        && record.sequence == content.sequence
        && record.removal.is_none()
    {
        return steady::plan(s, content, record);
    }
    if ground::is_taken_back(s, content) {
        return ground::undo(s).unwrap_or_else(|| attempt::rest(s));
    }
    // Before anything is looked at: what may not be watched cannot be waited for.
    ownership::check_rights(s, content)
        .or_else(|| ownership::look_at_ground(s, content))
        .or_else(|| ownership::look_at_rest(s, content))
        .or_else(|| ownership::refuse(s, content))
        .or_else(|| ownership::intend(s, content))
        .or_else(|| ground::lay(s, content))
        .or_else(|| write::validate(s, content))
        // A dry run tells what exists after all: it may turn out to be another's.
        .or_else(|| ownership::look_at_surprises(s, content))
        .or_else(|| ownership::refuse(s, content))
        .or_else(|| write::stop_if_invalid(s, content))
        .or_else(|| ownership::intend(s, content))
        .or_else(|| write::apply(s, content))
        .or_else(|| prune::plan(s, content))
        .unwrap_or_else(|| settle(s, content))
}

/// A content that cannot be had or read is told at once if that is final, else when it lasts.
fn fetch(s: &Situation<'_>) -> Plan {
    match &s.progress.fetch {
        Some(standing) if !due(standing.retry_at, s.now) => {
            let failure = &standing.failure;
            let lasting = failure.class == FailureClass::Permanent || standing.attempts >= 3;
            let plan = if lasting {
                let note = ObjectNote {
                    object: format!("deployment object {}", s.goal.target.sequence_id),
                    reason: failure.reason.clone(),
                    message: failure.message.clone(),
                };
                outcome::failed(s, &failure.reason, vec![note])
            } else {
                Plan::waiting(Stage::Fetch, failure.message.clone())
            };
            attempt::park(plan, failure).wake(Some(standing.retry_at))
        }
        _ => Plan::with(Stage::Fetch, vec![Step::Fetch]),
    }
}

fn settle(s: &Situation<'_>, content: &Content) -> Plan {
    let Some(record) = s.record else { return Plan::new(Stage::Intend) };
    let record = outcome::settled(s, content, record);
    Plan::with(Stage::Settle, vec![Step::WriteRecord(Box::new(record))])
}
