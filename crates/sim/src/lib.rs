//! A simulated world for the agent's decisions: nothing here ships.
//!
//! The plan is a pure function, and so is everything around it here: an API server, a record store, a broker and
//! a watch in memory, a clock that is set, and one seed that decides what happens next. The state of a stack and
//! the index are the agent's own; only what talks over a network is replaced.
//!
//! ```text
//! rng case         a seed, and the story that it determines: clusters, deployment objects, other people
//! server           the API server: existence, uids, ownership, finalizers, namespaces, definitions
//! records broker   the record store; targets, contents, holds and reports
//! run              one run of the agent, from its start to its death
//! world            all of it together: what happens next, and the two places where the plan meets the world
//! invariants             what must hold at every step, whatever happens
//! scene            one stack, step by step
//! play end         plays a story with faults in it, and compares the ends
//! ```
//!
//! That the API server here answers as the real one does is proven by `crates/e2e/tests/simulator.rs`, which
//! plays [`corpus`] against both.

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
pub mod world;
