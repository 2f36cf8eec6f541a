//! Reading conditions.

use brokkr_api::report::ConditionStatus;
use serde_json::Value;

use super::verdict::{Health, HealthState, ObjectView, text};

/// One condition of a status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    /// Whether it refers to the current generation of the object.
    pub(super) current: bool,
}

impl<'a> Condition<'a> {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.status == "False"
    }

    pub(super) fn reason(&self) -> &'a str {
        self.reason
    }

    pub(super) fn has_status(&self, status: ConditionStatus) -> bool {
        let word = match status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        self.status == word
    }

    /// Returns this state, with the reason and message of the condition or, if it has none, with these.
    pub(super) fn health(&self, state: HealthState, reason: &str, message: &str) -> Health {
        let reason = if self.reason.is_empty() { reason } else { self.reason };
        let message = if self.message.is_empty() { message } else { self.message };
        Health::new(state, reason, message)
    }

    pub(super) fn ready(&self, reason: &str, message: &str) -> Health {
        self.health(HealthState::Ready, reason, message)
    }

    pub(super) fn progressing(&self, reason: &str, message: &str) -> Health {
        self.health(HealthState::Progressing, reason, message)
    }

    pub(super) fn failed(&self, reason: &str, message: &str) -> Health {
        self.health(HealthState::Failed, reason, message)
    }

    /// Returns the message, or `otherwise` if the condition has none.
    pub(super) fn message_or(&self, otherwise: &'a str) -> &'a str {
        if self.message.is_empty() { otherwise } else { self.message }
    }
}

/// Returns the condition of this type, if the status has one.
pub(super) fn find<'a>(object: &ObjectView<'a>, kind: &str) -> Option<Condition<'a>> {
    find_in(object.status.get("conditions")?, kind, object.generation)
}

/// Returns the condition of this type, if this list of conditions of an object of this generation has one.
pub(super) fn find_in<'a>(
    conditions: &'a Value,
    kind: &str,
    generation: Option<i64>,
) -> Option<Condition<'a>> {
    let found = conditions.as_array()?.iter().find(|condition| text(condition, "type") == kind)?;
    let observed = found.get("observedGeneration").and_then(Value::as_i64);
    Some(Condition {
        status: text(found, "status"),
        reason: text(found, "reason"),
        message: text(found, "message"),
        current: match (observed, generation) {
            (Some(observed), Some(generation)) => observed >= generation,
            _ => true,
        },
    })
}

/// Returns the condition of this type, if it is true and refers to the current generation.
pub(super) fn find_true<'a>(object: &ObjectView<'a>, kind: &str) -> Option<Condition<'a>> {
    find(object, kind).filter(|condition| condition.is_true() && condition.current)
}
