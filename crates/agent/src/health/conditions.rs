//! Reading `status.conditions`.

use serde_json::Value;

use super::verdict::{Health, ObjectView, text};

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

    /// Returns the reason, or `otherwise` if the condition has none.
    fn reason_or(&self, otherwise: &'a str) -> &'a str {
        if self.reason.is_empty() { otherwise } else { self.reason }
    }

    /// Returns ready, with the reason and message of the condition or, if it has none, with these.
    pub(super) fn ready(&self, reason: &'a str, message: &'a str) -> Health {
        Health::ready(self.reason_or(reason), self.message_or(message))
    }

    pub(super) fn progressing(&self, reason: &'a str, message: &'a str) -> Health {
        Health::progressing(self.reason_or(reason), self.message_or(message))
    }

    pub(super) fn failed(&self, reason: &'a str, message: &'a str) -> Health {
        Health::failed(self.reason_or(reason), self.message_or(message))
    }

    /// Returns the message, or `otherwise` if the condition has none.
    pub(super) fn message_or(&self, otherwise: &'a str) -> &'a str {
        if self.message.is_empty() { otherwise } else { self.message }
    }
}

/// Returns the condition of this type, if the status has one.
pub(super) fn find<'a>(object: &ObjectView<'a>, kind: &str) -> Option<Condition<'a>> {
    let conditions = object.status.get("conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| text(condition, "type") == kind)?;
    let observed = found.get("observedGeneration").and_then(Value::as_i64);
    Some(Condition {
        status: text(found, "status"),
        reason: text(found, "reason"),
        message: text(found, "message"),
        current: match (observed, object.generation) {
            (Some(observed), Some(generation)) => observed >= generation,
            _ => true,
        },
    })
}

/// Returns the condition of this type, if it is true and refers to the current generation.
pub(super) fn find_true<'a>(object: &ObjectView<'a>, kind: &str) -> Option<Condition<'a>> {
    find(object, kind).filter(|condition| condition.is_true() && condition.current)
}
