//! Failed requests and when to try them again; and the causes of unready workloads.

use jiff::Timestamp;

/// Why a step did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    pub reason: String,
    pub message: String,
    /// The server's own wish for how long to wait.
    pub retry_after: Option<std::time::Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// May succeed later without any change.
    Transient,
    /// Will fail again until somebody changes something.
    Permanent,
    /// What it needs is not there: a namespace, or its kind. Comes with an event, not with time.
    Missing,
    /// A field that cannot be changed would have to be.
    Immutable,
    /// The object is not what we thought: look again.
    Conflict,
}

/// A failure that stands, with when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryState {
    pub failure: Failure,
    /// Of an apply, be it a dry run: only another one answers it, whatever a look in between shows.
    pub of_apply: bool,
    pub attempts: u32,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}

/// The longest message of a cause: controllers put whole stack traces into theirs.
const LONGEST: usize = 400;

/// Why a workload is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// One word in CamelCase, as Kubernetes has it where it has one: `ImagePullBackOff`.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
}

impl Cause {
    #[must_use]
    pub fn new(reason: &str, message: &str) -> Self {
        let message = message.trim();
        let message = match message.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        };
        Self { reason: reason.to_owned(), message }
    }
}
