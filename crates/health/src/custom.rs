//! Custom resources, and kinds without a rule of their own.

use brokkr_manifest::order::is_built_in;
use jiff::Timestamp;
use serde_json::Value;

use super::conditions;
use super::verdict::{Health, ObjectView, STATUS_GRACE, in_grace, waiting_for_controller};

/// Uses the standard conditions `Reconciling`, `Stalled` and `Ready`.
pub(super) fn resource(object: &ObjectView<'_>, now: Timestamp) -> Health {
    if let Some(condition) = conditions::find_true(object, "Reconciling") {
        return condition.progressing("Reconciling", "reconciling");
    }
    if let Some(condition) = conditions::find_true(object, "Stalled") {
        return condition.failed("Stalled", "stalled");
    }
    if let Some(ready) = conditions::find(object, "Ready") {
        return match ready {
            ready if !ready.current => waiting_for_controller(),
            ready if ready.is_true() => ready.ready("Ready", "ready"),
            ready => ready.progressing("NotReady", "not ready"),
        };
    }
    // Without the grace period, a resource would count as ready until its controller first reconciles it, and
    // the stack would be reported as healthy too early.
    if !is_built_in(object.group) && has_no_status(object) && in_grace(object, STATUS_GRACE, now) {
        return Health::progressing("WaitingForStatus", "its controller has not reported a status yet");
    }
    Health::ready("Applied", "applied")
}

pub(super) fn has_no_status(object: &ObjectView<'_>) -> bool {
    match object.status {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
