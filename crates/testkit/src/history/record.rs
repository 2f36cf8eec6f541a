//! Operations, attempts, outcomes; and what agents saw.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, EventId, SequenceId, StackId};

/// What a client wants.
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

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    Object { stack: StackId, sequence: SequenceId, content: Checksum },
    Targets { stack: StackId },
    Receipt { durable: Vec<EventId> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged(Acknowledgement),
    /// For good: nothing was done, and nothing will be.
    Refused(String),
    /// It may have been done, or not, or may be done yet.
    Unknown(String),
}

/// One request, in nanoseconds since the recorder was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which replica was asked.
    pub replica: usize,
    pub began: u64,
    pub ended: u64,
    pub outcome: Outcome,
}

/// One wish with all its attempts, which carry the same key.
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

    /// The first acknowledgement, and when it arrived.
    pub fn acknowledged(&self) -> Option<(&Acknowledgement, u64)> {
        self.attempts.iter().find_map(|attempt| match &attempt.outcome {
            Outcome::Acknowledged(told) => Some((told, attempt.ended)),
            _ => None,
        })
    }

    /// Acknowledgement for good that nothing was done.
    pub fn refused(&self) -> bool {
        self.attempts.last().is_some_and(|attempt| matches!(attempt.outcome, Outcome::Refused(_)))
    }

    /// The object that it was told of.
    pub fn object(&self) -> Option<(StackId, SequenceId, Checksum)> {
        match self.acknowledged()?.0 {
            Acknowledgement::Object { stack, sequence, content } => Some((*stack, *sequence, *content)),
            _ => None,
        }
    }
}

/// What an agent was told to have, in the order in which it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedState {
    pub agent: AgentId,
    pub replica: usize,
    pub stacks: Vec<(StackId, SequenceId)>,
}

/// Everything that was asked and told.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    pub served: Vec<ServedState>,
}

impl History {
    pub fn acknowledged(&self) -> usize {
        self.operations.iter().filter(|operation| operation.acknowledged().is_some()).count()
    }
}

/// Takes the history down. Clients share it.
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
    /// Nanoseconds since the recorder was made.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins an operation; answers its number.
    pub fn begin(&self, key: &str, change: Change) -> usize {
        let mut history = self.history();
        history.operations.push(Operation { key: key.to_owned(), change, attempts: Vec::new() });
        history.operations.len() - 1
    }

    /// One attempt has ended.
    pub fn record_attempt(&self, operation: usize, replica: usize, began: u64, outcome: Outcome) {
        let attempt = Attempt { replica, began, ended: self.now(), outcome };
        if let Some(operation) = self.history().operations.get_mut(operation) {
            operation.attempts.push(attempt);
        }
    }

    pub fn served(&self, seen: ServedState) {
        self.history().seen.push(seen);
    }

    pub fn acknowledged(&self) -> usize {
        self.history().acknowledged()
    }

    /// How many acknowledgements came from this replica.
    pub fn acknowledged_at(&self, replica: usize) -> usize {
        let history = self.history();
        let attempts = history.operations.iter().flat_map(|operation| &operation.attempts);
        let told = |attempt: &&Attempt| {
            attempt.replica == replica && matches!(attempt.outcome, Outcome::Acknowledged(_))
        };
        attempts.filter(told).count()
    }

    pub fn snapshot(&self) -> History {
        self.history().clone()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
