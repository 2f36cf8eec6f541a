//! Projects: who owns stacks, tokens and webhooks.

pub mod delete;
pub mod get;
pub mod list;
pub mod put;
