//! Stacks: made, changed, targeted, deleted, and how they are doing.

pub mod delete;
pub mod get;
pub mod list;
pub mod put;
pub mod put_targets;
pub mod roll_back;
pub mod status;
pub mod summary;
pub mod why;
