//! What runs beside requests: each a loop with a timer, without input that could be lost, safe to repeat.
//!
//! | task          | what it does                                                                    |
//! |---------------|---------------------------------------------------------------------------------|
//! | `outbox_tail` | takes what changed into the index: every 200 ms, and at once after local commits |
//! | `audit_chain` | chains the audit log, on one replica at a time; logs the heads once a minute       |
//! | `refusals`    | writes refused attempts to the audit log, bounded                               |
//! | `event_tail`  | reads events once for all streams of this replica                               |
//! | `presence`    | stores when agents were last seen, in sorted batches                            |
//! | `standing`    | whether the installation is on hold, and what agents are asked for since a restore |
//! | `tidy`        | deletes outbox rows and idempotency keys that have had their time               |
//! | `retention`   | makes partitions ahead, drops old ones, and contents that have had their time   |
//! | `silence`     | notices agents that fell silent                                                 |
//! | `webhooks`    | sends what is due to webhooks: after local commits, and when something is due    |

pub mod audit_chain;
pub mod event_tail;
pub mod outbox_tail;
pub mod presence;
pub mod refusals;
pub mod restore_state;
pub mod retention;
pub mod silence;
pub mod tidy;
pub mod webhooks;
