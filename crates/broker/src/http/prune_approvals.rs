//! Prunes that wait for somebody: approved, and listed.

pub mod create;
pub mod list;
