//! A deterministic simulation for testing the agent's decisions; not part of the product.
//!
//! An API server, a record store, a broker and watches are simulated in memory, with a virtual clock and one seed that
//! determines the order of events. The state of stacks and the index are the agent's own code; only network
//! communication is replaced.
//!
//! ```text
//! rng case         a seed, and the story that it determines: clusters, deployment objects, other clients
//! server           the API server: existence, uids, ownership, finalizers, namespaces, definitions
//! records broker   the record store; targets, contents, holds and reports
//! run              one run of the agent, from start to crash or exit
//! world            all of it together: the order of events, and the calls of the plan
//! invariants       conditions that must hold after every step
//! scene            one stack, step by step
//! play end         runs a story with faults, and compares the final states
//! suite            runs many stories with every fault at every step
//! corpus           requests on which the simulated and the real API server must agree
//! ```
//!
//! `crates/e2e/tests/simulator.rs` sends the requests of [`corpus`] to the simulated and to a real API server, and checks
//! that both give the same response.

pub mod broker;
pub mod case;
pub mod corpus;
pub mod end;
pub mod invariants;
pub mod objects;
pub mod play;
pub mod records;
pub mod rng;
pub mod run;
pub mod scene;
pub mod server;
pub mod suite;
pub mod world;
