//! Events for the Events API v2 of PagerDuty. All messages of an alert have the same key, so they are one incident.

use brokkr_api::why::Cause;
use serde_json::{Value, json};

use super::clipped;
use crate::domain::alerts::message::AlertMessage;

const LONGEST_SUMMARY: usize = 1024;
const KEY_LENGTH: usize = 32;

pub fn is_integration_key(text: &str) -> bool {
    text.len() == KEY_LENGTH && text.chars().all(|character| character.is_ascii_alphanumeric())
}

/// Returns an event without effect, for tests: the end of an alert that does not exist.
pub fn test(project: &str) -> Value {
    json!({ "event_action": "resolve", "dedup_key": format!("brokkr-test-{project}") })
}

pub fn alert(alert: &AlertMessage) -> Value {
    if alert.is_resolved() {
        return json!({ "event_action": "resolve", "dedup_key": alert.id() });
    }
    // Drift is repaired: the stack works as long as that goes on.
    let severity = if alert.subject.cause == Cause::Contested { "warning" } else { "error" };
    json!({
        "event_action": "trigger",
        "dedup_key": alert.id(),
        "client": "Brokkr",
        "payload": {
            "summary": clipped(&alert.title(), LONGEST_SUMMARY),
            "source": format!("brokkr/{}/{}", alert.subject.project, alert.subject.stack.name),
            "severity": severity,
            "timestamp": alert.at,
            "component": alert.subject.stack.name,
            "group": alert.subject.project,
            "class": alert.subject.cause,
            "custom_details": alert.data(),
        },
    })
}
