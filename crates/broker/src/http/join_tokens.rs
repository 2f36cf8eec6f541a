//! Join tokens: how a new agent gets in.

pub mod create;
pub mod list;
pub mod revoke;
