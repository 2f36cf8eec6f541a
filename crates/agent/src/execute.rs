//! Carries one step out at the API server, and says what the answer means.

pub mod classify;
pub mod discovery;
mod inside;
pub mod request;

pub use request::Cluster;
