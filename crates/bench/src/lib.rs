//! Measures the agent beside its peers, and the broker beside bare counterparts: the same load, in one run.
//!
//! The machine is noisy and differs from yours, so no number means anything alone. Contestants take turns, rounds are
//! repeated, medians are compared within the run, and nothing is judged by absolute time.
//!
//! ```text
//! args.rs       what can be chosen
//! workload.rs   the objects: a realistic mix, and the same with every tenth changed
//! ground.rs     one API server, one broker, one agent, and the verbs to drive them
//! bare.rs       the floor: bare server-side-apply PATCHes, and how namespaces are cleared away
//! peers.rs      Flux's apply engine and kubectl
//! timeline.rs   where the agent's time goes, by its hops and the API server's audit log
//! results.rs    numbers, medians, a table, JSON
//! parts/        what is measured of the agent: create, memory, stacks, drift, idle
//! broker/       what is measured of the broker, and on what
//! ```

pub mod args;
mod bare;
pub mod broker;
mod ground;
mod parts;
mod peers;
mod results;
mod timeline;
mod workload;

pub use parts::run;
pub use results::Results;
