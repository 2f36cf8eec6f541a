//! The record of a stack in the cluster (`stacks.brokkr.io`), with the inventory of its objects.
//!
//! It is written before the first write for a stack and at every transition, always with its resourceVersion as
//! precondition, so that a stale writer fails. A small inventory is in the record itself; a larger one, of up to ten
//! thousand entries, is in separate shards.
//!
//! | file          | contents                                                           |
//! |---------------|--------------------------------------------------------------------|
//! | `store`       | loads, writes, fetches and deletes records                         |
//! | `wire`        | the record as Kubernetes stores it                                 |
//! | `choose`      | which of two records is valid (pure)                               |
//! | `retire`      | copies a record that another client deletes, before it is gone (E5) |
//! | `shard`       | splits an inventory (pure)                                         |
//! | `pack`        | entries as bytes (pure)                                            |
//! | `shard_store` | reads and writes shards                                            |

mod choose;
pub mod pack;
mod retire;
pub mod shard;
mod shard_store;
pub mod store;
pub mod wire;

pub use store::{RecordError, Records};
