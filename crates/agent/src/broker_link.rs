//! The broker, seen from the cluster. Every connection goes out from here.
//!
//! | file       | what it does                                                              |
//! |------------|---------------------------------------------------------------------------|
//! | `identity` | the key in the cluster, joining, the session count                          |
//! | `holds`    | the set of stacks held, the same here and at the broker                     |
//! | `keys`     | a new key in place of the old one, after a while or when asked              |
//! | `memory`   | the highest position seen, kept in the cluster                              |
//! | `poll`     | the long poll: what changed                                                 |
//! | `content`  | one deployment object: fetched, verified, parsed, resolved                  |
//! | `report`   | reports until they are acknowledged                                         |

pub mod content;
pub mod holds;
pub mod identity;
pub mod keys;
pub mod memory;
pub mod poll;
pub mod report;
