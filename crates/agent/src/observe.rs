//! Observes the live objects with our label (`brokkr.io/agent`): one watch per kind feeds one compact index.
//!
//! Whole objects are not stored. An event is reduced to a [`SeenObject`](crate::model::SeenObject) while it
//! is decoded: its owner, the hash of our managedFields entry, and its health.
//!
//! | file                | contents                                                         |
//! |---------------------|------------------------------------------------------------------|
//! | `watch`             | starts and stops watches                                         |
//! | `follow`            | one watch: list, watch, recover                                  |
//! | `request`           | the requests of a watch, and the meaning of refusals             |
//! | `served`            | whether and in which version a kind is served                    |
//! | `change`            | the changes that watches report                                  |
//! | `tracked`, `digest` | reduce an object while it is decoded                             |
//! | `timing`            | intervals and time limits of a watch                             |
//! | `index`             | the live objects, by key                                         |

mod change;
mod digest;
mod follow;
pub mod index;
mod request;
pub(crate) mod served;
#[cfg(test)]
mod tests;
mod timing;
pub mod tracked;
pub mod watch;

pub use change::{Change, LastState, Part, Scope};
pub use index::{Index, OrphanObject};
pub use watch::Watches;
