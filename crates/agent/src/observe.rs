//! What is live in the cluster, as far as it is ours: one watch per kind, one compact index.
//!
//! No object is kept. An event is reduced to a [`Seen`](crate::plan::types::Seen) as it is decoded:
//! who owns it, the hash of our managedFields entry, and the verdict on its health.

//!
//! | file      | what it does                                                    |
//! |-----------|-----------------------------------------------------------------|
//! | `watch`   | which watches run, and what they tell                            |
//! | `follow`  | one watch: list, watch, recover                                  |
//! | `ask`     | the requests of a watch, and what a refusal means                |
//! | `served`  | whether and how a kind is served                                 |
//! | `tracked`, `digest` | an object, reduced while it is decoded                 |
//! | `tempo`   | how long to wait for what                                        |
//! | `index`   | what is live, by key                                             |

mod ask;
mod digest;
mod follow;
pub mod index;
mod served;
mod tempo;
#[cfg(test)]
mod tests;
pub mod tracked;
pub mod watch;

pub use index::{Index, Stray};
pub use watch::{Change, Ground, Part, Scope, Watches};
