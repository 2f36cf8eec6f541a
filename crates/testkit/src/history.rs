//! Every call of every client and its outcome, checked afterwards against the database.
//!
//! A client without a conclusive response repeats the request with the same key until it knows the outcome.
//! Each attempt is recorded. The check is a pure function; its own tests plant violations that it must find.
//!
//! ```text
//! history/record.rs   operations, attempts, outcomes; the states that were served to agents, and what clients read
//! history/truth.rs    the final state, read from the database and from every replica
//! history/check.rs    the numbered invariants between history and final state
//! history/check/      those about targets, refusals, and how recent a response is
//! ```

mod check;
mod record;
#[cfg(test)]
mod tests;
mod truth;

pub use check::{Violation, check};
pub use record::{
    Acknowledgement, Attempt, Change, History, Operation, Outcome, Recorder, Refusal, ServedState, StackRead,
};
pub use truth::{ObjectRow, StackRow, Truth, View};
