//! The installation as a whole, and what a restore left to settle.

pub mod hold;
