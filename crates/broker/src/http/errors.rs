//! Errors over the fleet, grouped by what they have in common.

pub mod list;
