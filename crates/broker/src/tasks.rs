//! What runs beside requests: each a loop with a timer, without input that could be lost, safe to repeat.
//!
//! | task          | what it does                                                                    |
//! |---------------|---------------------------------------------------------------------------------|
//! | `outbox_tail` | takes what changed into the index: every 200 ms, and at once after local commits |
//! | `presence`    | stores when agents were last seen, in sorted batches                            |
//! | `standing`    | whether the installation is on hold, and what agents are asked for since a restore |
//! | `tidy`        | deletes outbox rows and idempotency keys that have had their time               |
//! | `webhooks`    | sends what is due to webhooks: after local commits, and when something is due    |

pub mod outbox_tail;
pub mod presence;
pub mod standing;
pub mod tidy;
pub mod webhooks;
