//! What runs beside requests: each a loop with a timer, without input that could be lost, safe to repeat.
//!
//! | task          | what it does                                                                    |
//! |---------------|---------------------------------------------------------------------------------|
//! | `outbox_tail` | takes what changed into the index: every 200 ms, and at once after local commits |
//! | `event_tail`  | reads events once for all streams of this replica                               |
//! | `presence`    | stores when agents were last seen, in sorted batches                            |
//! | `tidy`        | deletes outbox rows and idempotency keys that have had their time               |
//! | `retention`   | makes partitions ahead, drops old ones, and contents that have had their time   |
//! | `silence`     | notices agents that fell silent                                                 |

pub mod event_tail;
pub mod outbox_tail;
pub mod presence;
pub mod retention;
pub mod silence;
pub mod tidy;
