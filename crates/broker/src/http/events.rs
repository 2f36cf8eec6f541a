//! Events: what happened.

pub mod list;
