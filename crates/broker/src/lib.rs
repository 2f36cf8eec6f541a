//! The broker: the server that stores what should run and delivers it to each agent.
//!
//! A module depends only on modules in its own row or below; `tests/architecture.rs` checks this.
//!
//! | layer, top to bottom                       | contents                                                       |
//! |--------------------------------------------|----------------------------------------------------------------|
//! | [`commands`], [`serve`], [`config`], [`args`] | entry point, flags, wiring; `serve.rs` reads top to bottom  |
//! | [`admin`]                                  | health checks and metrics on a listener of their own           |
//! | [`router`]                                 | one table: route, permission, handler                          |
//! | [`listener`]                               | accept loop, TLS, deadlines, limits per address                |
//! | [`http`]                                   | handlers, one file per noun: read, call, map                   |
//! | [`tasks`]                                  | background loops                                               |
//! | [`state`]                                  | what handlers and tasks share                                  |
//! | [`access`]                                 | who is calling, and what they may do                           |
//! | [`index`]                                  | in-memory snapshot that answers polls                          |
//! | [`metrics`]                                | counters of this replica, figures about the fleet              |
//! | [`store`]                                  | all SQL, one file per noun                                     |
//! | [`domain`]                                 | rules without I/O                                              |
//! | [`telemetry`]                              | log lines and traces                                           |
//! | [`error`]                                  | the API error                                                  |
//!
//! A submission is written by `http` through `store`, together with an outbox row. `tasks/outbox_tail.rs` reads the outbox
//! and updates the `index`, which wakes the long polls of the affected agents.

pub mod access;
pub mod admin;
pub mod args;
pub mod commands;
pub mod config;
pub mod domain;
pub mod error;
pub mod http;
pub mod index;
pub mod listener;
pub mod metrics;
mod open_files;
pub mod router;
pub mod serve;
pub mod state;
pub mod store;
pub mod tasks;
pub mod telemetry;
