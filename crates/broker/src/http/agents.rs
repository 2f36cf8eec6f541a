//! Agents: joining, what they should have, what they hold and report; and how people see them.

mod change;
pub mod get;
pub mod holds;
pub mod leave;
pub mod list;
pub mod patch;
pub mod register;
pub mod rejoin;
pub mod reports;
pub mod revoke_keys;
pub mod rotate_key;
pub mod rotation;
pub mod session;
pub mod target_state;
pub mod targets;
pub mod visible;
pub mod why;
