//! What is live in the cluster, as far as it is ours: one watch per kind, one compact index.
//!
//! No object is kept. An event is reduced to a [`SeenObject`](crate::model::SeenObject) as it is decoded:
//! who owns it, the hash of our managedFields entry, and the verdict on its health.

//!
//! | file      | what it does                                                    |
//! |-----------|-----------------------------------------------------------------|
//! | `watch`   | which watches run                                                |
//! | `follow`  | one watch: list, watch, recover                                  |
//! | `ask`     | the requests of a watch, and what a refusal means                |
//! | `served`  | whether and how a kind is served                                 |
//! | `tracked`, `digest` | an object, reduced while it is decoded                 |
//! | `timing`   | how long to wait for what                                        |
//! | `index`   | what is live, by key                                             |

mod change;
mod digest;
mod follow;
pub mod index;
mod request;
mod served;
#[cfg(test)]
mod tests;
mod timing;
pub mod tracked;
pub mod watch;

pub use change::{Change, Part, Scope};
pub use index::{Index, OrphanObject};
pub use watch::Watches;
