//! Matchers for SQL statements, and the faults that a rule can apply to them.

use std::sync::Arc;
use std::time::Duration;

use super::wire::Transaction;
use crate::rules::{self, InstalledRule};

pub type Matcher = rules::Matcher<Transaction>;
pub(super) type Rules = rules::Rules<Transaction, TimedFault>;
pub(super) type ActiveRule = Arc<InstalledRule<Transaction, TimedFault>>;

impl Matcher {
    /// Selects statements that contain this text.
    pub fn statement(part: &str) -> Self {
        let part = part.to_lowercase();
        Self::new(move |transaction| transaction.current.text.contains(&part))
    }

    /// Selects the COMMIT of a transaction in which a statement contained this text.
    pub fn commit_of(part: &str) -> Self {
        let part = part.to_lowercase();
        Self::new(move |transaction| {
            transaction.current.text.starts_with("commit")
                && transaction.earlier.iter().any(|statement| statement.text.contains(&part))
        })
    }

    /// Selects only statements for which a parameter, of the statement itself or of an earlier one in its
    /// transaction, contains this text.
    pub fn carrying(self, text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        let carries = move |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        self.and(move |transaction| {
            carries(&transaction.current.bytes)
                || transaction.earlier.iter().any(|statement| carries(&statement.bytes))
        })
    }
}

/// Whether the fault happens before or after the server executes the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The server has not received the statement.
    Before,
    /// The server has executed it; the client has not received the result.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closes the connection.
    Cut,
    /// Waits until the rule is released (then it continues) or discarded (then the connection is closed).
    Hold,
    /// Sends nothing on this connection any more, in either direction, and does not close it.
    Silence,
    /// Waits for a while.
    Delay(Duration),
}

/// A fault and the moment at which it happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedFault {
    pub(super) when: When,
    pub(super) fault: Fault,
}

impl rules::Fault for TimedFault {}
