//! The audit log of a project, and the chain over it.

pub mod head;
pub mod list;
pub mod verify;
