//! The installation as a whole, and what a restore left to settle.

pub mod ahead;
pub mod get;
pub mod hold;
pub mod settle;
pub mod unknown;
