//! Failed requests and when to try them again; and the causes of unready workloads.

use brokkr_api::reason::{Message, Reason};
use jiff::Timestamp;

/// Why a step did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    pub reason: Reason,
    pub message: Message,
    /// The server's Retry-After.
    pub retry_after: Option<std::time::Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum FailureClass {
    /// May succeed later without any change.
    Transient,
    /// Fails again until the manifest or the cluster changes.
    Permanent,
    /// A prerequisite is missing: the namespace or the kind of an object. It is retried when an event shows
    /// that the prerequisite exists.
    Missing,
    /// The change needs a new value for an immutable field.
    Immutable,
    /// The object differs from what was known: read it again.
    Conflict,
}

/// A failure, and when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryState {
    pub failure: Failure,
    pub of: FailedStep,
    pub attempts: u32,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}

/// What has failed. Only the success of such a step resolves the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStep {
    /// An apply or a dry run.
    Apply,
    /// Finding the kind of a definition.
    Resolve,
    /// A read, a deletion, or the content.
    Other,
}

impl RetryState {
    #[must_use]
    pub fn is_of_apply(&self) -> bool {
        self.of == FailedStep::Apply
    }
}

impl Failure {
    /// Returns a failure with the sentence of its reason.
    #[must_use]
    pub fn new(class: FailureClass, reason: Reason) -> Self {
        Self { class, message: reason.message(), reason, retry_after: None }
    }

    /// Returns a failure with the sentence of its reason and the message of another program.
    #[must_use]
    pub fn with_words(class: FailureClass, reason: Reason, words: impl std::fmt::Display) -> Self {
        Self { class, message: reason.message_with(words), reason, retry_after: None }
    }
}

/// The maximum length of a message, because controllers put whole stack traces into messages.
const LONGEST: usize = 400;

/// Why a workload is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: Reason,
    /// One sentence for people, in the words of the kubelet or the controller.
    pub message: Message,
}

impl Cause {
    #[must_use]
    pub fn new(reason: Reason, message: &str) -> Self {
        Self { reason, message: Message::new(message.trim()).clipped(LONGEST) }
    }
}
