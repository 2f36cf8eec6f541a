//! Carries one step out at the API server, and says what the answer means.

pub mod classify;
mod contained;
pub mod discovery;
pub mod pacing;
pub mod request;
pub mod rights;
pub mod write;

pub use request::Cluster;
pub use rights::Rights;
pub use write::Writes;
