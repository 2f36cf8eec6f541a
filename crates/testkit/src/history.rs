//! Every call of every client, with what it was told; checked afterwards against what is in the database.
//!
//! A client that gets no answer, or one that leaves it open, does not know what happened: it asks again under the same
//! key until it is told. Each attempt is a line of the history. The check is pure, so that it can be tested itself:
//! planted violations have to be found.
//!
//! ```text
//! history/record.rs   operations, attempts, outcomes; and what agents saw
//! history/truth.rs    what is there in the end: read from the database and from every replica
//! history/check.rs    what must hold between the two, each with its number of the reliability report
//! ```

mod check;
mod record;
#[cfg(test)]
mod tests;
mod truth;

pub use check::{Violation, check};
pub use record::{Acknowledgement, Attempt, Change, History, Operation, Outcome, Recorder, ServedState};
pub use truth::{ObjectRow, StackRow, Truth, View};
