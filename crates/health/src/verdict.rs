//! The verdict on one object, and helpers that the rules share.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use brokkr_api::reason::{Message, Reason};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a new custom resource without a status counts as progressing.
pub const STATUS_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// How long the scheduler may find no node for a Pod before that counts as a failure.
pub const SCHEDULING_GRACE: SignedDuration = SignedDuration::from_secs(15);

/// The maximum length of a message, because controllers put whole stack traces into messages.
const LONGEST_MESSAGE: usize = 512;

/// The input of the rules, borrowed, so that a watch event is evaluated without a copy.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    pub kind: &'a str,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deletion: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    pub annotations: &'a BTreeMap<String, String>,
    /// `Null` if there is none.
    pub spec: &'a Value,
    /// `Null` if there is none.
    pub status: &'a Value,
}

/// The health of an object, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub state: HealthState,
    #[serde(flatten)]
    pub reason: Reason,
    /// A few words for people, such as "2/3 replicas ready".
    pub message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// It has the state that its manifest describes.
    Ready,
    /// It has not reached that state yet, but has not failed.
    Progressing,
    /// It will not reach that state by itself.
    Failed,
    /// Paused on purpose: it continues when a user resumes it.
    Suspended,
    /// Being deleted.
    Terminating,
    /// The status does not show whether it has reached that state.
    Unknown,
}

impl Health {
    pub(super) fn new(state: HealthState, reason: &str, message: impl AsRef<str>) -> Self {
        let message = Message::new(message.as_ref()).clipped(LONGEST_MESSAGE);
        Self { state, reason: Reason::from_kubernetes(reason), message }
    }

    pub(super) fn ready(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Ready, reason, message)
    }

    pub(super) fn progressing(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Progressing, reason, message)
    }

    pub(super) fn failed(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Failed, reason, message)
    }
}

/// Health is interned: equal verdicts are stored once.
impl Hash for Health {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.state, self.reason.code(), &self.message).hash(hasher);
    }
}

/// Returns whether the object is younger than `grace`. If its creation time is far in the future, a clock is
/// wrong, and the answer is no.
pub(super) fn in_grace(object: &ObjectView<'_>, grace: SignedDuration, now: Timestamp) -> bool {
    object.created.is_some_and(|created| now.duration_since(created).abs() < grace)
}

pub(super) fn waiting_for_controller() -> Health {
    Health::progressing("GenerationNotObserved", "its controller has not processed the newest change yet")
}

/// Returns a count in a status or specification; the API server omits zeros.
pub(super) fn count(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
