//! The broker: the server that holds what should run, and tells each agent.
//!
//! A request walks through the rooms in this order, and none looks into a room further on:
//!
//! | room         | what happens there                                                              |
//! |--------------|---------------------------------------------------------------------------------|
//! | [`listener`] | sockets, TLS, deadlines                                                         |
//! | [`router`]   | the one table of route × permission                                             |
//! | [`access`]   | who is calling, what may they do                                                |
//! | [`http`]     | one file an endpoint: read, call, map                                           |
//! | [`domain`]   | rules without IO                                                                |
//! | [`store`]    | all SQL, one file a noun                                                        |
//! | [`index`]    | the in-memory picture that answers polls                                        |
//! | [`metrics`], [`admin`] | what it says about itself, and to whom                                    |
//! | [`tasks`]    | what runs beside requests: the outbox tail that feeds the index, flushing, tidying |
//!
//! A submission is written by `http/deployment_objects/submit.rs` through `store`, with a doorbell in the
//! outbox; `tasks/outbox_tail.rs` hears it and shows it to the `index`; `http/agents/target_state.rs`
//! answers the agents that waited. [`serve`] wires it all, and reads from top to bottom.

pub mod access;
pub mod admin;
pub mod args;
pub mod broker;
pub mod commands;
pub mod config;
pub mod domain;
pub mod http;
pub mod index;
mod limits;
pub mod listener;
pub mod metrics;
pub mod router;
pub mod seeded;
pub mod serve;
pub mod store;
pub mod tasks;
pub mod telemetry;
