//! Simulates tens of thousands of agents in one process with the real protocol, as load for measurements and fault tests.
//!
//! To the broker, each behaves like an agent of a cluster: it signs assertions and renews them, opens a session, waits in a long
//! poll, reports what it holds, fetches contents and checks them, and reports results with deterministic ids. Only the cluster is
//! missing. Failures happen at random, at configurable rates, and are reproducible by a seed.
//!
//! | file          | contents                                                                       |
//! |---------------|--------------------------------------------------------------------------------|
//! | `config`      | the configuration                                                              |
//! | `identity`    | keys and ids derived from a seed; assertions                                   |
//! | `enrol`       | adds many agents to the database                                               |
//! | `join`        | lets a few agents join as usual                                                |
//! | `wire`        | one TLS connection, own or shared; one request and its response                |
//! | `request`     | the requests of the protocol                                                   |
//! | `agent`       | one agent: its state, and its loop of turns                                    |
//! | `work`        | how it processes a response: hold, fetch, apply, report                        |
//! | `random`      | a small seeded random number generator                                         |
//! | `counts`      | counters of what all of them did                                               |
//! | `swarm`       | all agents: start, wait for a condition, stop                                  |
//! | `files`       | the limit of open files                                                        |

mod agent;
pub mod config;
mod counts;
pub mod enrol;
pub mod files;
pub mod identity;
pub mod join;
mod random;
mod request;
mod swarm;
pub mod wire;
mod work;

pub use config::{BadUpdates, Broker, Config, Failures, Reaction, Transport};
pub use counts::Counts;
pub use identity::Identity;
pub use request::{Endpoint, Poll, Write};
pub use swarm::{EventKind, Late, Swarm};
