//! The agent's side of the protocol with the broker. The agent opens all connections.
//!
//! | file         | contents                                                               |
//! |--------------|------------------------------------------------------------------------|
//! | `identity`   | the agent's key in the cluster, and joining                            |
//! | `holds`      | the set of held stacks, synchronised with the broker                   |
//! | `keys`       | rotation of the key, by age or on request                              |
//! | `memory`     | session count, highest seen position and status, stored in the cluster |
//! | `poll`       | the long poll for changes of the target state                          |
//! | `content`    | fetches, verifies, parses and resolves a deployment object             |
//! | `report`     | sends reports until they are acknowledged                              |
//! | `stand_down` | when a superseded process starts again                                 |
//! | `upgrade_signals` | what the poll and an upgrade of the agent tell each other         |

pub mod content;
pub mod health_rules;
pub mod holds;
pub mod identity;
pub mod keys;
pub mod memory;
pub mod poll;
pub mod report;
pub mod stand_down;
pub mod upgrade_signals;
