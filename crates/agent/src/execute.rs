//! Sends the requests of one step to the API server, and interprets the responses.

mod absence;
pub mod classify;
mod contained;
pub mod discovery;
mod granting;
pub mod pacing;
pub mod request;
pub mod rights;
pub mod roles;
pub mod write;

pub use request::Cluster;
pub use rights::Rights;
pub use write::Writes;
