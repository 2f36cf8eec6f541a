//! Text for people, from API types. Time is passed in, so that the same answer always reads the same.

pub mod agents;
pub mod conditions;
pub mod events;
pub mod history;
pub mod progress;
#[cfg(test)]
pub mod samples;
pub mod stacks;
pub mod status;
pub mod system;
pub mod table;
pub mod targets;
pub mod text;
pub mod why;
