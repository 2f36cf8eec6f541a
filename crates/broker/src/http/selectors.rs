//! Selectors, tried out before they are used.

pub mod preview;
