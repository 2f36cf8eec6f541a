//! Grants: which agents a project may use, for what, and as whom. Written by admins alone.

pub mod delete;
pub mod get;
pub mod list;
pub mod put;
