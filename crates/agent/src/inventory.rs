//! The record in the cluster: `stacks.brokkr.io`, one per stack, with the inventory of what is owned.
//!
//! It is written before the first write for a stack and whenever a transition happens, always with
//! its resourceVersion as precondition, so that a stale writer loses here. The inventory travels
//! packed, because ten thousand entries must fit.

pub mod pack;
pub mod store;
pub mod wire;

pub use store::{RecordError, Records};
