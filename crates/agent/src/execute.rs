//! Carries one step out at the API server, and says what the answer means.

pub mod classify;
pub mod discovery;
mod inside;
pub mod pacing;
pub mod request;
pub mod rights;
pub mod write;

pub use request::Cluster;
pub use rights::Rights;
pub use write::Writes;
