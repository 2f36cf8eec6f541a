//! The record in the cluster: `stacks.brokkr.io`, one per stack, with the inventory of what is owned.
//!
//! It is written before the first write for a stack and whenever a transition happens, always with
//! its resourceVersion as precondition, so that a stale writer loses here. A small inventory is in the
//! record itself; a larger one is in shards beside it, because ten thousand entries must fit.
//!
//! | file     | what it does                                                            |
//! |----------|-------------------------------------------------------------------------|
//! | `store`  | load, write, fetch and delete records                                   |
//! | `wire`   | the record as Kubernetes stores it                                      |
//! | `choose` | which of two records counts (pure)                                      |
//! | `retire` | copies a record that someone deletes, before it is gone (E5)            |
//! | `shard`  | splits an inventory (pure)                                              |
//! | `pack`   | entries as bytes (pure)                                                 |
//! | `shard_store` | reads and writes shards                                            |

mod choose;
pub mod pack;
mod retire;
pub mod shard;
mod shard_store;
pub mod store;
pub mod wire;

pub use store::{RecordError, Records};
