//! Operations, attempts, outcomes; and the states that were served to agents.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, ErrorCode, EventId, Position, SequenceId, StackId};

/// A change that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Every submission has contents of its own.
    Submit {
        stack: String,
        content: Checksum,
    },
    RollBack {
        stack: String,
    },
    Target {
        stack: String,
        selectors: Vec<String>,
    },
    Delete {
        stack: String,
    },
    Report {
        agent: AgentId,
        reports: Vec<EventId>,
    },
}

impl Change {
    /// Returns the name of the stack that it changes.
    pub fn stack(&self) -> Option<&str> {
        match self {
            Self::Submit { stack, .. }
            | Self::RollBack { stack }
            | Self::Target { stack, .. }
            | Self::Delete { stack } => Some(stack),
            Self::Report { .. } => None,
        }
    }
}

/// The content of a successful response. The position is the one at which the change is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    Object {
        stack: StackId,
        sequence: SequenceId,
        content: Checksum,
        position: Option<Position>,
    },
    Targets {
        stack: StackId,
        selectors: Vec<String>,
        position: Option<Position>,
    },
    /// Refused reports come with the stack that they are about.
    Receipt {
        durable: Vec<EventId>,
        refused: Vec<(EventId, StackId)>,
    },
}

/// A permanent error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// None if the response has no code.
    pub code: Option<ErrorCode>,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged(Acknowledgement),
    /// Refused permanently: nothing was done, and nothing will be done.
    Refused(Refusal),
    /// The change may have been made or not, or may be made later.
    Unknown(String),
}

/// One request; times are nanoseconds since the recorder was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The replica that received the request.
    pub replica: usize,
    pub began: u64,
    pub ended: u64,
    pub outcome: Outcome,
}

/// One change with all its attempts, which have the same idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub key: String,
    pub change: Change,
    pub attempts: Vec<Attempt>,
}

impl Operation {
    pub fn began(&self) -> u64 {
        self.attempts.first().map_or(0, |attempt| attempt.began)
    }

    /// Returns the first acknowledgement and its time.
    pub fn acknowledged(&self) -> Option<(&Acknowledgement, u64)> {
        self.attempts.iter().find_map(|attempt| match &attempt.outcome {
            Outcome::Acknowledged(acknowledgement) => Some((acknowledgement, attempt.ended)),
            _ => None,
        })
    }

    /// Returns whether it was refused permanently.
    pub fn refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns the refusal and its time.
    pub fn refusal(&self) -> Option<(&Refusal, u64)> {
        let attempt = self.attempts.last()?;
        match &attempt.outcome {
            Outcome::Refused(refusal) => Some((refusal, attempt.ended)),
            _ => None,
        }
    }

    /// Returns the acknowledged object.
    pub fn object(&self) -> Option<(StackId, SequenceId, Checksum)> {
        match self.acknowledged()?.0 {
            Acknowledgement::Object { stack, sequence, content, .. } => Some((*stack, *sequence, *content)),
            _ => None,
        }
    }
}

/// The stacks in one response to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedState {
    pub agent: AgentId,
    pub replica: usize,
    /// The position that the agent had seen before, and sent with the request.
    pub asked: Position,
    /// The position of the response: nothing that it shows is above.
    pub position: Position,
    pub stacks: Vec<(StackId, SequenceId)>,
}

/// The newest version of a stack, as a client read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRead {
    pub replica: usize,
    pub stack: StackId,
    /// The position that the client sent with the request.
    pub asked: Position,
    pub newest: Option<SequenceId>,
}

/// All operations, served states and reads, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub served: Vec<ServedState>,
    pub reads: Vec<StackRead>,
}

impl History {
    pub fn acknowledged(&self) -> usize {
        self.operations.iter().filter(|operation| operation.acknowledged().is_some()).count()
    }
}

/// Records the history. Clients share it.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    history: Mutex<History>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { start: Instant::now(), history: Mutex::default() }
    }
}

impl Recorder {
    /// Returns the nanoseconds since the recorder was created.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins an operation and returns its number.
    pub fn begin(&self, key: &str, change: Change) -> usize {
        let mut history = self.history();
        history.operations.push(Operation { key: key.to_owned(), change, attempts: Vec::new() });
        history.operations.len() - 1
    }

    /// Records an attempt that has ended.
    pub fn record_attempt(&self, operation: usize, replica: usize, began: u64, outcome: Outcome) {
        let attempt = Attempt { replica, began, ended: self.now(), outcome };
        if let Some(operation) = self.history().operations.get_mut(operation) {
            operation.attempts.push(attempt);
        }
    }

    pub fn served(&self, state: ServedState) {
        self.history().served.push(state);
    }

    pub fn read(&self, read: StackRead) {
        self.history().reads.push(read);
    }

    /// Counts the acknowledgements of this replica.
    pub fn acknowledged_at(&self, replica: usize) -> usize {
        let history = self.history();
        let attempts = history.operations.iter().flat_map(|operation| &operation.attempts);
        let acknowledged = |attempt: &&Attempt| {
            attempt.replica == replica && matches!(attempt.outcome, Outcome::Acknowledged(_))
        };
        attempts.filter(acknowledged).count()
    }

    pub fn snapshot(&self) -> History {
        self.history().clone()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
