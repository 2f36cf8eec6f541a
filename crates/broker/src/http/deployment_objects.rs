//! Deployment objects: submitted, listed, fetched.

pub mod content;
pub mod diff;
pub mod list;
pub mod submit;
