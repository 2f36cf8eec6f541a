//! Requests and answers: one folder a noun, one file a verb. The rest of this folder is what they share.
//!
//! | module     | what lives there                                                              |
//! |------------|-------------------------------------------------------------------------------|
//! | `frame`    | around every request: its id, its log line, problem documents                 |
//! | `error`    | the one error of handlers                                                     |
//! | `headers`  | reading the protocol's headers                                                |
//! | `change`   | a request that changes something: read in full, repeatable by its key         |
//! | `write`    | its transaction: idempotency, position, doorbell to the tail                  |
//! | `precondition` | `If-Match`: changed only if nothing else was                            |
//! | `expect`   | the number that a change has to name if it takes stacks away                  |
//! | `reading`  | reading manifests, a few at a time                                            |
//! | `quota`    | how much a project may have                                                   |
//! | `paging`   | `after` and `limit`                                                           |
//! | `contents` | the bounded cache of contents                                                 |

pub mod agents;
pub mod api_tokens;
pub mod audit;
pub mod barred_contents;
pub mod change;
pub mod deployment_objects;
pub mod errors;
pub mod events;
pub mod expect;
pub mod frame;
pub mod grants;
pub mod headers;
pub mod health;
pub mod join_tokens;
pub mod paging;
pub mod precondition;
pub mod projects;
pub mod prune_approvals;
pub mod reading;
pub mod selectors;
pub mod stacks;
pub mod streams;
pub mod system;
pub mod webhooks;
pub mod write;
