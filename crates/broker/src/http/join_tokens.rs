//! Join tokens: how a new agent gets in.

pub mod create;
