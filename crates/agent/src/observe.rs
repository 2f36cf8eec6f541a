//! What is live in the cluster, as far as it is ours: one watch per kind, one compact index.
//!
//! No object is kept. An event is reduced to a [`Seen`](crate::plan::types::Seen) as it is decoded:
//! who owns it, the hash of our managedFields entry, and the verdict on its health.

pub mod index;
pub mod tracked;
pub mod watch;

pub use index::Index;
pub use watch::{Change, Watches};
